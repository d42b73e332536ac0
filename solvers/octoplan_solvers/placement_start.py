"""Assignments to start a placement solver from: regular placements, cut evenly by time or by memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from octoplan_solvers.ops import FloatArray
from octoplan_solvers.partition_dp import minimise_heaviest_stage
from octoplan_solvers.placement_check import assignment_bound, check_assignment, surely_held_bytes
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult

#: Weights of memory against time that are tried one after the other until an assignment is allowed.
_MEMORY_WEIGHTS = (0.0, 0.5, 0.9, 1.0)


def best_start(problem: PipelineProblem) -> tuple[Assignment | None, bool]:
    """Return a regular assignment to start from, and whether it is allowed.

    Of the allowed loop and zigzag placements it is the one with the smallest bound. If none is allowed, it is the most
    even one in memory (a solver may find an allowed one nearby), or None if there are more ranks than layers.
    """
    last: Assignment | None = None
    for weight in _MEMORY_WEIGHTS if _memory_share(problem).any() else (0.0,):
        starts = list(_regular_starts(problem, weight))
        allowed = [start for start in starts if not check_assignment(problem, start)]
        if allowed:
            return min(allowed, key=lambda start: assignment_bound(problem, start)), True
        last = starts[0] if starts else None
    return last, False


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


def _regular_starts(problem: PipelineProblem, memory_weight: float) -> Iterator[Assignment]:
    """Yield loop and zigzag placements for every number of stages per rank, cut evenly by time and memory."""
    # Time counts as a share of an average rank's, as memory counts as a share of the limit.
    average_s = max(float(problem.layer_time_s.max(axis=0).sum()) / problem.num_ranks, 1e-300)
    time_weight = (1 - memory_weight) / average_s
    cost = time_weight * problem.rank_layer_time_s + memory_weight * _memory_share(problem)
    overhead = time_weight * problem.op_overhead_s * problem.ops_per_microbatch
    for ranks in _regular_placements(problem):
        boundaries = minimise_heaviest_stage(cost[ranks], overhead[ranks])
        yield Assignment(tuple(boundaries), tuple(ranks))


def _memory_share(problem: PipelineProblem) -> FloatArray:
    """Return ``(R, L)``: the share of a rank's limits that a layer takes, the larger of the two."""
    activation = surely_held_bytes(problem)
    whole = (problem.state_bytes + activation)[None, :] / problem.memory_limit_bytes[:, None]
    share: FloatArray = np.maximum(whole, activation / problem.dynamic_limit_bytes)
    return share


def _regular_placements(problem: PipelineProblem) -> Iterator[list[int]]:
    ranks = list(range(problem.num_ranks))
    for count in range(1, min(problem.max_stages_per_rank, problem.num_layers // problem.num_ranks) + 1):
        yield ranks * count
        if count > 1 and problem.num_ranks > 1:
            yield [rank for turn in range(count) for rank in ranks[:: 1 - 2 * (turn % 2)]]
