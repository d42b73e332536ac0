"""DualPipeV: DualPipe cut in half, two stages per rank in a V, at least two microbatches per rank.

DualPipeV runs a forward of one stage and a backward of the other at the same time on a device, to hide
communication. Ops of this project's execution model never overlap, so such a pair is a forward and then a
backward: what the published bubble ``(P - 1) (F&B + B - 3W)`` calls F&B takes F + B here (F, B and W of one
stage, B = I + W). A rank holds at most ``2 P + 1`` stage activations.

Source: DeepSeek-AI, DualPipe repository (2025), after the "cut-in-half" of Qi et al.
"""

from __future__ import annotations

from octoplan.baselines.schedule import RankOrder
from octoplan.baselines.v_phases import VPhases


def dualpipe_v(num_ranks: int, num_microbatches: int) -> tuple[RankOrder, ...]:
    """Return the order of every rank; ``num_microbatches`` is at least ``2 num_ranks``."""
    return tuple(_rank_order(rank, num_ranks, num_microbatches) for rank in range(num_ranks))


def _rank_order(rank: int, num_ranks: int, num_microbatches: int) -> RankOrder:
    """One line per published phase."""
    later = num_ranks - 1 - rank
    ops = VPhases(rank, num_ranks)
    ops.add("F0", times=2 * later)
    ops.add("F0 F1", times=rank + 1)
    ops.add("I1 W F1", times=later)
    ops.add("F0 B1 F1 B0", times=num_microbatches - 2 * num_ranks + rank + 1)
    ops.add("B1 F1 B0", times=later)
    # Of the last backwards that alternate, the second half is split: their W fill what follows.
    last = ["B1", "B0"] * (rank + 1)
    ops.add(" ".join(last[: rank + 1] + [f"I{op[1]}" for op in last[rank + 1 :]]))
    ops.add("W I0", times=later)
    ops.add("W", times=rank + 1)
    return tuple(ops.order)
