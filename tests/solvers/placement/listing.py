"""Every allowed assignment of a small problem in plain Python, and which of them differ by names of ranks only."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations, product

import numpy as np

from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.placement_check import surely_held_bytes
from octoplan_solvers.problem import Assignment, PipelineProblem


def every_assignment(problem: PipelineProblem) -> list[Assignment]:
    """List all whose state and activations of one microbatch fit; declared constraints are not looked at."""
    num_layers, num_ranks, most = problem.num_layers, problem.num_ranks, problem.max_stages_per_rank
    return [
        assignment
        for number in range(1, num_layers + 1)
        for cuts in combinations(range(1, num_layers), number - 1)
        for ranks in product(range(num_ranks), repeat=number)
        if all(1 <= ranks.count(rank) <= most for rank in range(num_ranks))
        and fits(problem, assignment := Assignment(tuple(pairwise((0, *cuts, num_layers))), ranks))
    ]


def fits(problem: PipelineProblem, assignment: Assignment) -> bool:
    """Sum bytes layer by layer."""
    held, slack = surely_held_bytes(problem).tolist(), 1 + 1e-9
    state, activation = [0.0] * problem.num_ranks, [0.0] * problem.num_ranks
    for (first, end), rank in zip(assignment.boundaries, assignment.ranks, strict=True):
        state[rank] += sum(problem.state_bytes[first:end].tolist())
        activation[rank] += sum(held[first:end])
    return all(
        state[rank] + activation[rank] <= problem.memory_limit_bytes[rank] * slack
        and activation[rank] <= problem.dynamic_limit_bytes * slack
        for rank in range(problem.num_ranks)
    )


def obeys(constraints: PlacementConstraints, assignment: Assignment, num_ranks: int) -> bool:
    """Tell whether an assignment keeps every declared constraint."""
    stage_of = [s for s, (first, end) in enumerate(assignment.boundaries) for _ in range(first, end)]
    ranks = [assignment.ranks[stage] for stage in stage_of]
    counts = [assignment.ranks.count(rank) for rank in range(num_ranks)]
    rule = constraints.stages_per_rank
    return (
        all(ranks[layer] == rank for layer, rank in constraints.pins)
        and all(len({ranks[layer] for layer in group}) == 1 for group in constraints.same_rank)
        and all(len({ranks[layer] for layer in group}) == len(group) for group in constraints.different_rank)
        and all(stage_of[first] == stage_of[end - 1] for first, end in constraints.same_stage)
        and all(stage_of[layer] != stage_of[layer + 1] for layer in constraints.boundary_after)
        and all(rule.min <= count <= (rule.max or count) for count in counts)
        and (not rule.equal or len(set(counts)) == 1)
    )


def name_swaps(problem: PipelineProblem, *, groups_of_equals: bool) -> list[tuple[int, ...]]:
    """Return the renamings of ranks that change nothing: all, or those built of swaps of two equal ranks."""
    names = [name for name in permutations(range(problem.num_ranks)) if changes_nothing(problem, name)]
    if not groups_of_equals:
        return names
    return [
        name
        for name in names
        if all(swap(rank, other, len(name)) in names for rank, other in enumerate(name))
    ]


def swap(one: int, other: int, num_ranks: int) -> tuple[int, ...]:
    """Return the names after two ranks changed theirs."""
    names = list(range(num_ranks))
    names[one], names[other] = other, one
    return tuple(names)


def changes_nothing(problem: PipelineProblem, name: tuple[int, ...]) -> bool:
    """Tell whether ranks called otherwise are the same problem."""
    of, constraints = list(name), problem.constraints
    limits = constraints.rank_max_in_flight(problem.num_ranks, problem.num_microbatches)
    rows = problem.rank_type, problem.op_overhead_s, problem.memory_limit_bytes, limits
    if any((row != row[of]).any() for row in rows):
        return False
    if any(name[rank] != rank for _, rank in constraints.pins):
        return False
    between = ~np.eye(problem.num_ranks, dtype=bool)
    tables = problem.latency_s, problem.bandwidth
    return all((table == table[np.ix_(of, of)])[between].all() for table in tables)


def renamed(assignment: Assignment, name: tuple[int, ...]) -> Assignment:
    """Call every rank by its new name."""
    return Assignment(assignment.boundaries, tuple(name[rank] for rank in assignment.ranks))
