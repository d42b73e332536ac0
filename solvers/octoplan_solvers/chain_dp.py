"""Heaviest stage as light as can be, for stages on ranks in a fixed order: exact, by dynamic programming.

It respects what concerns one stage at a time: memory of one microbatch, pins, cuts that are forbidden or asked for. It
neither chooses a placement nor looks at heads, tails and transfers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from octoplan_solvers.ops import FloatArray
from octoplan_solvers.placement_check import check_assignment
from octoplan_solvers.placement_limits import memory_limits
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult
from octoplan_solvers.symmetry import interchangeable_ranks


def solve_placement(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 1,
    hint: Assignment | None = None,
) -> SolverResult:
    """Cut the model such that the heaviest stage is as light as can be.

    Parameters
    ----------
    time_limit_s, seed, num_workers:
        Without effect: the work is O(S L^2).
    hint:
        Its ranks are taken as the order of the stages; None: one stage on every rank, in order of rank.

    Returns
    -------
    SolverResult
        ``objective_s`` is all microbatches' time on the heaviest stage. It is a bound of the makespan of other
        assignments only where the order of ranks is no choice; elsewhere ``bound_s`` is None, and a problem that
        the given order cannot satisfy is ``unknown``.
    """
    started = time.monotonic()
    ranks = tuple(range(problem.num_ranks)) if hint is None else hint.ranks
    order_is_free = problem.max_stages_per_rank == 1 and len(interchangeable_ranks(problem)) == 1
    found = _lightest(_stage_costs(problem, ranks))
    seconds = time.monotonic() - started
    if found is None:
        return SolverResult("infeasible" if order_is_free else "unknown", "dp", seed, seconds)
    heaviest, boundaries = found
    objective = heaviest * problem.num_microbatches
    bound = objective if order_is_free else None
    assignment = Assignment(boundaries, ranks)
    if check_assignment(problem, assignment):
        return SolverResult("unknown", "dp", seed, seconds, bound_s=bound)
    return SolverResult(
        status="optimal",
        solver="dp",
        seed=seed,
        seconds=seconds,
        objective_s=objective,
        bound_s=bound,
        assignment=assignment,
        solutions=(assignment,),
    )


def _stage_costs(problem: PipelineProblem, ranks: Sequence[int]) -> FloatArray:
    """Return ``(S, L + 1, L + 1)`` seconds of stage s with layers ``[first, end)``; infinite if barred."""
    prefix = _prefix(problem.rank_layer_time_s[list(ranks)])
    cost: FloatArray = prefix[:, None, :] - prefix[:, :, None]
    cost += (2 * problem.op_overhead_s[list(ranks)])[:, None, None]
    cost[:, _barred_stages(problem)] = np.inf
    for limit in memory_limits(problem):
        held = _prefix(limit.layer_bytes[None])[0]
        too_large = held[None, :] - held[:, None] > limit.limit_bytes * (1 + 1e-9)
        for stage, rank in enumerate(ranks):
            if rank == limit.rank:
                cost[stage, too_large] = np.inf
    for layer, pinned in problem.constraints.pins:
        for stage, rank in enumerate(ranks):
            if rank != pinned:
                cost[stage, : layer + 1, layer + 1 :] = np.inf
    return cost


def _prefix(values: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _barred_stages(problem: PipelineProblem) -> np.ndarray:
    """Return ``(L + 1, L + 1)``: True where no stage may have layers ``[first, end)``."""
    width = problem.num_layers + 1
    barred = ~np.triu(np.ones((width, width), dtype=bool), k=1)
    for first, end in problem.constraints.same_stage:
        barred[first + 1 : end, :] = True
        barred[:, first + 1 : end] = True
    for layer in problem.constraints.boundary_after:
        barred[: layer + 1, layer + 2 :] = True
    return barred


def _lightest(cost: FloatArray) -> tuple[float, tuple[tuple[int, int], ...]] | None:
    """Return the smallest possible heaviest stage and, of its partitions, the one with the least sum of squares."""
    best = np.full(cost.shape[1], np.inf)
    best[0] = 0.0
    for stage_cost in cost:
        best = np.maximum(best[:, None], stage_cost).min(axis=0)
    heaviest = float(best[-1])
    if not np.isfinite(heaviest):
        return None
    squares = np.where(cost <= heaviest * (1 + 1e-12), cost**2, np.inf)
    total = np.full(cost.shape[1], np.inf)
    total[0] = 0.0
    choices = []
    for stage_squares in squares:
        sums = total[:, None] + stage_squares
        choices.append(sums.argmin(axis=0))
        total = sums.min(axis=0)
    cuts = [cost.shape[1] - 1]
    for choice in reversed(choices):
        cuts.append(int(choice[cuts[-1]]))
    return heaviest, tuple(pairwise(reversed(cuts)))
