"""Moves through partitions and placements. Each returns a neighbour, or None where it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from octoplan_solvers.problem import Assignment

Move = Callable[[Assignment, np.random.Generator, int], Assignment | None]


def shift_boundary(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Hand one or a few layers over a stage boundary."""
    if assignment.num_stages < 2:
        return None
    cuts = _cuts(assignment)
    index = int(random.integers(1, assignment.num_stages))
    step = int(random.choice([-2, -1, -1, 1, 1, 2]))
    cuts[index] = min(max(cuts[index] + step, cuts[index - 1] + 1), cuts[index + 1] - 1)
    return _with_cuts(cuts, assignment.ranks)


def shift_run(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Shift a run of neighbouring boundaries by one layer: load moves from one end of the run to the other."""
    if assignment.num_stages < 3:
        return None
    cuts = _cuts(assignment)
    first, last = sorted(random.integers(1, assignment.num_stages, size=2).tolist())
    step = int(random.choice([-1, 1]))
    cuts[first : last + 1] = [cut + step for cut in cuts[first : last + 1]]
    return _with_cuts(cuts, assignment.ranks) if _increasing(cuts) else None


def move_layer(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Take a layer from one stage and give one to another: two boundaries move independently."""
    once = shift_boundary(assignment, random, num_ranks)
    return None if once is None else shift_boundary(once, random, num_ranks)


def swap_ranks(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Exchange the ranks of two stages."""
    one, other = random.integers(assignment.num_stages, size=2).tolist()
    ranks = list(assignment.ranks)
    if ranks[one] == ranks[other]:
        return None
    ranks[one], ranks[other] = ranks[other], ranks[one]
    return Assignment(assignment.boundaries, tuple(ranks))


def change_rank(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Put a stage on another rank."""
    ranks = list(assignment.ranks)
    ranks[int(random.integers(len(ranks)))] = int(random.integers(num_ranks))
    return Assignment(assignment.boundaries, tuple(ranks))


def split_stage(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Cut a stage in two; one part goes to a random rank."""
    stage = int(random.integers(assignment.num_stages))
    first, end = assignment.boundaries[stage]
    if end - first < 2:
        return None
    cut = int(random.integers(first + 1, end))
    boundaries = [
        *assignment.boundaries[:stage],
        (first, cut),
        (cut, end),
        *assignment.boundaries[stage + 1 :],
    ]
    pair = [assignment.ranks[stage], int(random.integers(num_ranks))]
    if random.random() < 0.5:
        pair.reverse()
    return Assignment(tuple(boundaries), (*assignment.ranks[:stage], *pair, *assignment.ranks[stage + 1 :]))


def merge_stages(assignment: Assignment, random: np.random.Generator, num_ranks: int) -> Assignment | None:
    """Join two neighbouring stages on the rank of one of them."""
    if assignment.num_stages <= num_ranks:
        return None
    stage = int(random.integers(assignment.num_stages - 1))
    merged = assignment.boundaries[stage][0], assignment.boundaries[stage + 1][1]
    rank = assignment.ranks[stage + int(random.integers(2))]
    boundaries = (*assignment.boundaries[:stage], merged, *assignment.boundaries[stage + 2 :])
    return Assignment(boundaries, (*assignment.ranks[:stage], rank, *assignment.ranks[stage + 2 :]))


PARTITION_MOVES: tuple[Move, ...] = (shift_boundary, shift_boundary, shift_run, move_layer)
PLACEMENT_MOVES: tuple[Move, ...] = (swap_ranks, change_rank, split_stage, merge_stages)


def is_allowed(assignment: Assignment, num_ranks: int, max_stages_per_rank: int) -> bool:
    """True if every rank holds at least one stage and none more than allowed."""
    counts = np.bincount(assignment.ranks, minlength=num_ranks)
    return bool(counts.min() >= 1 and counts.max() <= max_stages_per_rank)


def _cuts(assignment: Assignment) -> list[int]:
    return [0, *(end for _, end in assignment.boundaries)]


def _with_cuts(cuts: list[int], ranks: tuple[int, ...]) -> Assignment:
    return Assignment(tuple(pairwise(cuts)), ranks)


def _increasing(cuts: list[int]) -> bool:
    return all(first < second for first, second in pairwise(cuts))
