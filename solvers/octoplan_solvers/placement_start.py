"""Assignments to start a placement solver from: regular placements with balanced cuts."""

from __future__ import annotations

from dataclasses import replace

from octoplan_solvers.partition_dp import balanced_boundaries
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult


def best_start(problem: PipelineProblem) -> Assignment | None:
    """Return the allowed loop or zigzag placement with the smallest bound, or None if none is allowed."""
    allowed = [start for start in _regular_starts(problem) if not check_assignment(problem, start)]
    return min(allowed, key=lambda start: assignment_bound(problem, start), default=None)


def take_start(problem: PipelineProblem, result: SolverResult, start: Assignment | None) -> SolverResult:
    """Return the start as solution of a solver that was stopped before it had one, if the start is allowed."""
    if start is None or check_assignment(problem, start):
        return result
    return replace(
        result,
        status="feasible",
        objective_s=assignment_bound(problem, start),
        assignment=start,
        solutions=(start,),
    )


def _regular_starts(problem: PipelineProblem) -> list[Assignment]:
    most = min(problem.max_stages_per_rank, problem.num_layers // problem.num_ranks)
    placements: list[list[int]] = []
    ranks = list(range(problem.num_ranks))
    for count in range(1, most + 1):
        placements.append(ranks * count)
        if count > 1 and problem.num_ranks > 1:
            placements.append([rank for turn in range(count) for rank in ranks[:: 1 - 2 * (turn % 2)]])
    return [
        Assignment(tuple(balanced_boundaries(problem, placement)), tuple(placement))
        for placement in placements
    ]
