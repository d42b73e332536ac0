"""Every partition and placement: which there are, and which the declarative constraints allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product

import numpy as np

from octoplan_schemas import Constraint, ModelGraph
from tests.exhaustive.arrays import Ints, Job

#: Ends of the stages, and their ranks.
Row = tuple[tuple[int, ...], tuple[int, ...]]


def list_assignments(
    model: ModelGraph, job: Job, max_stages_per_rank: int, constraints: Sequence[Constraint]
) -> list[Row]:
    """Return all that the constraints allow; without any, one of those that differ by names of equal ranks."""
    twins = [] if constraints else _twins(job)
    rows = _all(len(model.layers), len(job.limit), max_stages_per_rank, twins)
    return [row for row in rows if all(_obeys(constraint, model, job, row) for constraint in constraints)]


def table(rows: Sequence[Row]) -> tuple[Ints, Ints, Ints]:
    """Return ends and ranks, a row each, padded, and the numbers of stages."""
    num_stages = np.array([len(ends) for ends, _ in rows], dtype=np.int64)
    padded = np.zeros((2, len(rows), num_stages.max()), np.int64)
    for index, (ends, ranks) in enumerate(rows):
        padded[0, index, : len(ends)], padded[1, index, : len(ranks)] = ends, ranks
    return padded[0], padded[1], num_stages


def _all(
    num_layers: int, num_ranks: int, max_stages_per_rank: int, twins: list[tuple[int, int]]
) -> Iterator[Row]:
    """Every rank holds a stage, and none more than allowed; of twins the lower rank appears first."""
    most = min(num_layers, num_ranks * max_stages_per_rank)
    for num_stages in range(num_ranks, most + 1):
        placements = [
            ranks
            for ranks in product(range(num_ranks), repeat=num_stages)
            if all(1 <= ranks.count(rank) <= max_stages_per_rank for rank in range(num_ranks))
            and all(ranks.index(first) < ranks.index(second) for first, second in twins)
        ]
        for cuts in combinations(range(1, num_layers), num_stages - 1):
            for ranks in placements:
                yield (*cuts, num_layers), ranks


def _twins(job: Job) -> list[tuple[int, int]]:
    """Neighbours in groups of ranks that may all swap names: equal in every respect, and so are their links."""
    groups: list[list[int]] = []
    for rank in range(len(job.limit)):
        for group in groups:
            if all(_can_swap(job, rank, member) for member in group):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return [pair for group in groups for pair in pairwise(group)]


def _can_swap(job: Job, one: int, other: int) -> bool:
    names = list(range(len(job.limit)))
    names[one], names[other] = other, one
    return (
        bool((job.seconds[one] == job.seconds[other]).all())
        and bool(job.overhead[one] == job.overhead[other])
        and bool(job.limit[one] == job.limit[other])
        and all(
            links[a, b] == links[names[a], names[b]]
            for links in (job.latency, job.bandwidth)
            for a in names
            for b in names
            if a != b
        )
    )


def _obeys(constraint: Constraint, model: ModelGraph, job: Job, row: Row) -> bool:
    """Whether a partition and placement obeys a constraint of the contract, section 7."""
    ends, ranks = row
    position = model.layer_index()
    stage_of = [s for s, (first, end) in enumerate(pairwise((0, *ends))) for _ in range(first, end)]

    def ranks_of(names: Sequence[str]) -> set[int]:
        return {ranks[stage_of[position[name]]] for name in names}

    if constraint.pin:
        return ranks_of(constraint.pin.layers) == {constraint.pin.rank}
    if constraint.same_rank:
        return len(ranks_of(constraint.same_rank)) == 1
    if constraint.different_rank:
        return len(ranks_of(constraint.different_rank)) == len(constraint.different_rank)
    if constraint.same_stage:
        return len({stage_of[position[name]] for name in constraint.same_stage}) == 1
    if constraint.boundary_after:
        return position[constraint.boundary_after] + 1 in ends
    if constraint.stages_per_rank:
        numbers = [ranks.count(rank) for rank in range(len(job.limit))]
        wanted = constraint.stages_per_rank
        is_equal = not wanted.equal or min(numbers) == max(numbers)
        return is_equal and min(numbers) >= (wanted.min or 1) and max(numbers) <= (wanted.max or max(numbers))
    raise NotImplementedError(f"{constraint} restricts orders")
