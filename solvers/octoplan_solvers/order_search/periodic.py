"""`periodic_order`: an order for any number of microbatches, in time that does not grow with it (but for writing it).

Candidates are list schedules of a few microbatches that repeat themselves, and the patterns of `solve_pattern`, both
unrolled and as priorities of a list schedule. Each is priced for the full number by a straight line; the best ones
are written down in full and simulated.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

from octoplan_solvers.order import Order
from octoplan_solvers.order_search.model import Effort
from octoplan_solvers.order_search.pattern import least_seconds_per_microbatch
from octoplan_solvers.order_search.periodic_candidates import (
    Candidate,
    all_choices,
    from_list_schedules,
    from_patterns,
    until_stopped,
)
from octoplan_solvers.order_search.result import Evaluate, OrderResult, is_better
from octoplan_solvers.staged import StagedProblem
from octoplan_solvers.stopping import is_stopped

SOLVER = "periodic"
#: Candidates that are simulated in full: in all, and at most so many that keep the limits.
_MAX_TRIED, _MAX_FITTING = 12, 3
#: List schedules that get time to settle.
_MAX_SETTLING = 6


def periodic_order(
    staged: StagedProblem,
    evaluate: Evaluate,
    *,
    seed: int = 0,
    policy_evaluations: int = 200,
    effort_s: float = 0.5,
    stop: threading.Event | None = None,
) -> OrderResult:
    """Build an order from a repeating part. The same arguments give the same order.

    Parameters
    ----------
    evaluate:
        Exact simulation of an order for all microbatches.
    policy_evaluations:
        List schedules to try besides those of the portfolio.
    effort_s:
        CP-SAT's deterministic seconds for each pattern model (about ten for each size of the unit). Patterns are
        solved only if no list schedule keeps the busiest rank busy.
    stop:
        Once set, the search ends soon with what it has.

    Returns
    -------
    OrderResult
        ``feasible``, or ``unknown`` if nothing was found that keeps the limits. There is no bound.
    """
    began = time.monotonic()
    effort = Effort(effort_s, seed, num_workers=1, deterministic=True, stop=stop)
    best: tuple[Order, float] | None = None
    trace: list[tuple[float, float | None, float | None]] = []
    for order, makespan_s in _in_full(_candidates(staged, policy_evaluations, effort), evaluate, stop):
        if best is None or is_better(makespan_s, best[1]):
            best = order, makespan_s
            trace.append((time.monotonic() - began, makespan_s, None))
    return OrderResult(
        status="unknown" if best is None else "feasible",
        solver=SOLVER,
        seed=seed,
        seconds=time.monotonic() - began,
        objective_s=best[1] if best else None,
        order=best[0] if best else None,
        trace=tuple(trace),
    )


def _candidates(staged: StagedProblem, policy_evaluations: int, effort: Effort) -> list[Candidate]:
    """Try harder as long as no candidate keeps the busiest rank (or link) busy all the time."""
    enough_s = least_seconds_per_microbatch(staged) * (1 + 1e-6)
    few = _with_few_microbatches(staged, 1)
    choices = all_choices(few, policy_evaluations, effort.seed, effort.stop)
    candidates = list(until_stopped(from_list_schedules(staged, few, choices), effort.stop))
    if few.num_microbatches < staged.num_microbatches and _fastest(candidates) > enough_s:
        settling = _with_few_microbatches(staged, 3)
        settled = from_list_schedules(staged, settling, choices[:_MAX_SETTLING])
        candidates += until_stopped(settled, effort.stop)
    if _fastest(candidates) > enough_s:
        candidates += until_stopped(from_patterns(staged, few, _fastest(candidates), effort), effort.stop)
    return candidates


def _with_few_microbatches(staged: StagedProblem, times: int) -> StagedProblem:
    """Return the problem with so many microbatches that the pipeline is filled many times over, or with its own."""
    enough = times * max(144, 12 * staged.num_stages)
    return replace(staged, num_microbatches=min(staged.num_microbatches, enough))


def _fastest(candidates: list[Candidate]) -> float:
    return min((candidate.rate_s for candidate in candidates), default=math.inf)


def _in_full(
    candidates: list[Candidate], evaluate: Evaluate, stop: threading.Event | None
) -> Iterator[tuple[Order, float]]:
    """Write down and simulate what promises most, until a few orders have kept the limits."""
    fitting = 0
    for candidate in sorted(candidates, key=lambda one: one.makespan_s)[:_MAX_TRIED]:
        order = candidate.build()
        makespan_s = None if order is None else evaluate(order)
        if order is not None and makespan_s is not None:
            yield order, makespan_s
            fitting += 1
        if fitting == _MAX_FITTING or is_stopped(stop):
            return
