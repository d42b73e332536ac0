"""`periodic_order`: an order for any number of microbatches, in time that does not grow with it (but for writing it).

Candidates are list schedules of a few microbatches that repeat themselves, and the patterns of `solve_pattern`, both
unrolled and as priorities of a list schedule. Each is priced for the full number by a straight line; the best ones
are written down in full and simulated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from octoplan_solvers.list_scheduling import (
    ListScheduler,
    MemoryTooSmallError,
    Policy,
    PolicyRule,
    improve_policy,
    portfolio,
)
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.model import Effort
from octoplan_solvers.order_search.pattern import Pattern, solve_pattern, unroll
from octoplan_solvers.order_search.repetition import Repetition, find_repetitions, repeat, time_seconds
from octoplan_solvers.order_search.result import Evaluate, OrderResult, is_better
from octoplan_solvers.staged import StagedProblem

SOLVER = "periodic"
#: Repetitions may have any number of microbatches that divides this.
_UNIT = 12
#: Sizes of the unit for which patterns are solved.
_PATTERN_SIZES = (1, 2)
#: Candidates that are simulated in full.
_MAX_FULL = 3


@dataclass(frozen=True)
class _Candidate:
    """An order for few microbatches that can be drawn out, or a pattern; and what it promises."""

    source: Repetition | Pattern
    makespan_s: float


def periodic_order(
    staged: StagedProblem,
    evaluate: Evaluate,
    *,
    seed: int = 0,
    policy_evaluations: int = 200,
    effort_s: float = 1.0,
) -> OrderResult:
    """Build an order from a repeating part.

    The same arguments give the same order.

    Parameters
    ----------
    evaluate:
        Exact simulation of an order for all microbatches.
    policy_evaluations:
        List schedules to try besides those of the portfolio.
    effort_s:
        CP-SAT's deterministic seconds for each pattern model.

    Returns
    -------
    OrderResult
        ``feasible``, or ``unknown`` if nothing was found that keeps the limits. There is no bound.
    """
    began = time.monotonic()
    few = _few_microbatches(staged)
    patterns = [
        pattern
        for size in _PATTERN_SIZES
        if (pattern := solve_pattern(staged, size, Effort(effort_s, seed, 1, deterministic=True)))
    ]
    best: Order | None = None
    best_s: float | None = None
    trace: list[tuple[float, float | None, float | None]] = []
    candidates = list(_candidates(staged, few, patterns, policy_evaluations, seed))
    for candidate in sorted(candidates, key=lambda one: one.makespan_s)[:_MAX_FULL]:
        order = _in_full(staged, candidate.source)
        makespan_s = evaluate(order)
        if is_better(makespan_s, best_s):
            best, best_s = order, makespan_s
            trace.append((time.monotonic() - began, best_s, None))
    return OrderResult(
        status="unknown" if best is None else "feasible",
        solver=SOLVER,
        seed=seed,
        seconds=time.monotonic() - began,
        objective_s=best_s,
        order=best,
        trace=tuple(trace),
    )


def _few_microbatches(staged: StagedProblem) -> StagedProblem:
    """Return the problem with enough microbatches to fill the pipeline several times over, if it has more."""
    enough = max(4 * _UNIT, 6 * staged.num_stages)
    more = staged.num_microbatches - enough
    return staged if more <= 0 else replace(staged, num_microbatches=enough + more % _UNIT)


def _candidates(
    staged: StagedProblem,
    few: StagedProblem,
    patterns: list[Pattern],
    policy_evaluations: int,
    seed: int,
) -> Iterator[_Candidate]:
    total = staged.num_microbatches
    for pattern in patterns:
        makespan_s = float(time_seconds(few, unroll(few, pattern)).makespan)
        more = total - few.num_microbatches
        yield _Candidate(pattern, makespan_s + more * pattern.seconds_per_microbatch)
    try:
        scheduler = ListScheduler(few)
    except MemoryTooSmallError:
        return
    for policy in _policies(scheduler, patterns, policy_evaluations, seed):
        order = scheduler.schedule(policy).order
        for repetition in find_repetitions(few, order, _UNIT):
            yield _Candidate(repetition, repetition.makespan_for(total))


def _policies(
    scheduler: ListScheduler, patterns: list[Pattern], policy_evaluations: int, seed: int
) -> Iterator[Policy]:
    rules = portfolio(scheduler.staged)
    yield from (rule.on(scheduler.staged) for rule in rules)
    for pattern in patterns:
        for wait in (0.0, 0.3, 1.0):
            yield pattern_policy(scheduler.staged, pattern, wait)
    yield improve_policy(scheduler, evaluations=policy_evaluations, seed=seed)[0]


def pattern_policy(staged: StagedProblem, pattern: Pattern, wait: float) -> Policy:
    """Return the policy that prefers what comes first in the pattern."""
    base = PolicyRule(wait=wait).on(staged)
    bias = base.bias.copy()
    start = pattern.offset.mean(axis=2) / pattern.period * pattern.num_microbatches
    bias[:, : start.shape[1]] = start
    return base.with_bias(bias)


def _in_full(staged: StagedProblem, source: Repetition | Pattern) -> Order:
    if isinstance(source, Pattern):
        return unroll(staged, source)
    return repeat(source, staged.num_microbatches)
