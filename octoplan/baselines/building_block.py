"""The zero-bubble family as repeated building blocks.

A building block is the start time of every F and I of ONE microbatch, in slots of one op, such that shifting
it by a fixed interval per microbatch never asks a rank for two ops at once. Repeating it gives the order of F
and I on every rank; `octoplan.baselines.weight_filling` squeezes out the idle slots and puts W into bubbles.
How long a block keeps an activation alive decides how many are alive at a time.

With P ranks and equal stages, F = I = W = 1 per stage:

=======  ===========  ==================================================  =====================
method   stages/rank  activations held, in microbatches of a whole rank   bubble of a rank
=======  ===========  ==================================================  =====================
zb-h1    1            P                                                   P - 1
zb-h2    1            2 P - 1                                             none once it has begun
zb-v     2            P                                                   none once it has begun
v-half   2            (P + 2) // 2                                        about half of 1F1B
v-min    2            (P + 4) // 3                                        about two thirds of 1F1B
=======  ===========  ==================================================  =====================

Sources: Qi et al., Zero Bubble Pipeline Parallelism (2023); Qi et al., Pipeline Parallelism with Controllable
Memory (2024).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildingBlock:
    """Slots of one microbatch and the memory that the method may use.

    Attributes
    ----------
    interval:
        Slots between one microbatch and the next: F, I and W of all stages of a rank.
    starts:
        Slot of every step of a microbatch: F of stages 0, 1, ..., then I of the stages in reverse.
    max_live:
        Most stage activations that a rank holds at a time, from the start of F to the end of W.
    """

    interval: int
    starts: tuple[int, ...]
    max_live: int


def zb_h1(num_ranks: int) -> BuildingBlock:
    """The memory of 1F1B: I follows F three slots later per rank still to come."""
    return _one_stage_block(num_ranks, backward_step=2, max_live=num_ranks)


def zb_h2(num_ranks: int) -> BuildingBlock:
    """Twice the distance, twice the memory, and no bubble once a rank has begun."""
    return _one_stage_block(num_ranks, backward_step=5, max_live=2 * num_ranks - 1)


def _one_stage_block(num_ranks: int, backward_step: int, max_live: int) -> BuildingBlock:
    """F moves on by one slot per rank, I comes back by ``backward_step`` slots per rank."""
    forward = tuple(range(num_ranks))
    backward = tuple(num_ranks + backward_step * hop for hop in range(num_ranks))
    return BuildingBlock(3, forward + backward, max_live)


def zb_v(num_ranks: int) -> BuildingBlock:
    """F and I move by four slots per rank away from rank 0 and by two back towards it."""
    return _v_block(num_ranks, away=4, back=2, turn=3, top=1, last_turn=3, max_live=2 * num_ranks)


def v_half(num_ranks: int) -> BuildingBlock:
    """Two slots per rank away from rank 0 and one back: half the memory of zb-v."""
    top = 4 if num_ranks % 2 == 0 else 1  # else F and I of some rank would meet in one slot
    return _v_block(num_ranks, away=2, back=1, turn=1, top=top, last_turn=2, max_live=num_ranks // 2 * 2 + 2)


def v_min(num_ranks: int) -> BuildingBlock:
    """One slot per rank both ways: the least memory that such a block can do with.

    The pause before the turn at rank 0 keeps F and I out of one slot where P is a multiple of three. Where P
    is one less than such a multiple, the published block has none; there the memory limit has room to spare,
    and a pause lets the replay use it, which shortens the bubble.
    """
    top = 1 + {0: 2, 1: 0, 2: 4}[num_ranks % 3]
    return _v_block(
        num_ranks, away=1, back=1, turn=1, top=top, last_turn=1, max_live=(num_ranks + 4) // 3 * 2
    )


def _v_block(
    num_ranks: int, *, away: int, back: int, turn: int, top: int, last_turn: int, max_live: int
) -> BuildingBlock:
    """Four legs along the ranks: F down, F up, I down, I up.

    ``turn``, ``top`` and ``last_turn`` are the slots from the start of a leg's last op to the start of the
    next leg's first op: at the last rank, at rank 0, and at the last rank again.
    """
    hops = num_ranks - 1
    first_up = away * hops + turn
    second_down = first_up + back * hops + top
    second_up = second_down + away * hops + last_turn
    starts = [away * hop for hop in range(num_ranks)]
    starts += [first_up + back * hop for hop in range(num_ranks)]
    starts += [second_down + away * hop for hop in range(num_ranks)]
    starts += [second_up + back * hop for hop in range(num_ranks)]
    return BuildingBlock(6, tuple(starts), max_live)
