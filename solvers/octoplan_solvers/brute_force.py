"""Every partition and placement of a tiny problem, one by one: the yardstick of the other solvers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations, pairwise, product

from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult


def all_assignments(problem: PipelineProblem) -> Iterator[Assignment]:
    """Yield every assignment in which each rank holds at least one stage and none too many.

    There are about ``(R + 1)**L`` of them. Neighbouring stages may share a rank, and memory or declared constraints
    may forbid what is yielded.
    """
    num_layers, num_ranks, most = problem.num_layers, problem.num_ranks, problem.max_stages_per_rank
    for num_stages in range(num_ranks, min(num_layers, num_ranks * most) + 1):
        placements = [
            ranks
            for ranks in product(range(num_ranks), repeat=num_stages)
            if all(1 <= ranks.count(rank) <= most for rank in range(num_ranks))
        ]
        for inner in combinations(range(1, num_layers), num_stages - 1):
            boundaries = tuple(pairwise((0, *inner, num_layers)))
            for ranks in placements:
                yield Assignment(boundaries, ranks)


def solve_placement(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 1,
    hint: Assignment | None = None,
) -> SolverResult:
    """Return the allowed assignment with the smallest `assignment_bound`.

    Parameters
    ----------
    time_limit_s:
        Seconds; where they do not suffice the best so far is ``feasible`` without a bound, or the result ``unknown``.
    seed, num_workers, hint:
        Without effect; here because every solver has them.
    """
    started = time.monotonic()
    best: tuple[float, Assignment] | None = None
    complete = True
    for assignment in all_assignments(problem):
        if time.monotonic() - started > time_limit_s:
            complete = False
            break
        if not check_assignment(problem, assignment):
            bound = assignment_bound(problem, assignment)
            if best is None or bound < best[0]:
                best = bound, assignment
    seconds = time.monotonic() - started
    if best is None:
        return SolverResult("infeasible" if complete else "unknown", "brute-force", seed, seconds)
    return SolverResult(
        status="optimal" if complete else "feasible",
        solver="brute-force",
        seed=seed,
        seconds=seconds,
        objective_s=best[0],
        bound_s=best[0] if complete else None,
        assignment=best[1],
        solutions=(best[1],),
    )
