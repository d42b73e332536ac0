"""ZB-V as published: with F = I = W no rank idles between its first and its last op.

Source: Qi et al., Zero Bubble Pipeline Parallelism (2023), section 6.
"""

from __future__ import annotations

from octoplan.baselines.schedule import RankOrder
from octoplan.baselines.v_phases import VPhases


def zb_v_orders(num_ranks: int, num_microbatches: int) -> tuple[RankOrder, ...]:
    """Return the order of every rank.

    The phases need ``2 num_ranks - 1`` microbatches; with fewer, the orders of so many are built and
    the ops of the microbatches that are not there are left out.
    """
    enough = max(num_microbatches, 2 * num_ranks - 1)
    orders = (_rank_order(rank, num_ranks, enough) for rank in range(num_ranks))
    return tuple(tuple(op for op in order if op[2] < num_microbatches) for order in orders)


def _rank_order(rank: int, num_ranks: int, num_microbatches: int) -> RankOrder:
    """One line per published phase."""
    from_here_on = num_ranks - rank
    ops = VPhases(rank, num_ranks)
    ops.add("F0", times=2 * from_here_on - 1)
    ops.add("F1 F0", times=rank)
    ops.add("F1 I1 W1", times=from_here_on)
    ops.add("F0 I0 W0 F1 I1 W1", times=num_microbatches - 2 * num_ranks + rank + 1)
    ops.add("I0 W0 F1 I1 W1", times=from_here_on - 1)
    ops.add("I0 I1", times=rank)
    ops.add("I0 W0", times=from_here_on)
    ops.add("W1", times=rank)
    ops.add("W0", times=rank)
    return tuple(ops.order)
