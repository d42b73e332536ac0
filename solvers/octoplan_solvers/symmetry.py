"""Ranks that can swap names without changing a problem, and the one naming of an assignment that solvers use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octoplan_solvers.ops import IntArray
from octoplan_solvers.problem import Assignment, PipelineProblem


def interchangeable_ranks(problem: PipelineProblem) -> list[list[int]]:
    """Group ranks that can swap names: same type, limits, overhead, constraints, and the same links to everyone."""
    groups: list[list[int]] = []
    for rank in range(problem.num_ranks):
        # Swaps with one common member generate all others, so one member speaks for the group.
        for group in groups:
            if _is_symmetry(problem, [(rank, group[0])]):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return groups


def interchangeable_groups(problem: PipelineProblem, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Group the groups that can swap names as a whole, such as equal nodes of a cluster; returns group indices."""
    classes: list[list[int]] = []
    for index, group in enumerate(groups):
        for members in classes:
            other = groups[members[0]]
            if len(other) == len(group) and _is_symmetry(problem, list(zip(group, other, strict=True))):
                members.append(index)
                break
        else:
            classes.append([index])
    return classes


def canonical(problem: PipelineProblem, assignment: Assignment) -> Assignment:
    """Rename interchangeable ranks in the order in which they appear along the model."""
    groups = interchangeable_ranks(problem)
    appearance = {rank: stage for stage, rank in reversed(list(enumerate(assignment.ranks)))}
    unseen = assignment.num_stages

    def first_stage(rank: int) -> int:
        return appearance.get(rank, unseen)

    name: dict[int, int] = {}
    for members in interchangeable_groups(problem, groups):
        by_appearance = sorted(members, key=lambda index: min(map(first_stage, groups[index])))
        for target, source in zip(members, by_appearance, strict=True):
            ranks = sorted(groups[source], key=first_stage)
            name.update(zip(ranks, groups[target], strict=True))
    return Assignment(assignment.boundaries, tuple(name[rank] for rank in assignment.ranks))


def _is_symmetry(problem: PipelineProblem, swaps: Sequence[tuple[int, int]]) -> bool:
    renamed: IntArray = np.arange(problem.num_ranks)
    for one, other in swaps:
        renamed[[one, other]] = renamed[[other, one]]
    per_rank = (
        problem.rank_type,
        problem.op_overhead_s,
        problem.memory_limit_bytes,
        _constraint_label(problem),
    )
    if any((values != values[renamed]).any() for values in per_rank):
        return False
    between = ~np.eye(problem.num_ranks, dtype=bool)
    return all(
        bool((table == table[np.ix_(renamed, renamed)])[between].all())
        for table in (problem.latency_s, problem.bandwidth)
    )


def _constraint_label(problem: PipelineProblem) -> IntArray:
    """Return a number per rank that differs where constraints tell ranks apart."""
    constraints = problem.constraints
    label = constraints.rank_max_in_flight(problem.num_ranks, problem.num_microbatches)
    for _, rank in constraints.pins:
        label[rank] = -1 - rank
    return label
