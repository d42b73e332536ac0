"""`periodic_order`: an order for any number of microbatches, in time that does not grow with it (but for writing it).

Candidates are list schedules of a few microbatches that repeat themselves, and the patterns of `solve_pattern`, both
unrolled and as priorities of a list schedule. Each is priced for the full number by a straight line; the best ones
are written down in full and simulated.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

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
from octoplan_solvers.order_search.order_memory import keeps_limits_without_transfers
from octoplan_solvers.order_search.pattern import (
    Pattern,
    least_seconds_per_microbatch,
    solve_pattern,
    unroll,
)
from octoplan_solvers.order_search.repetition import Repetition, find_repetitions, repeat, time_seconds
from octoplan_solvers.order_search.result import Evaluate, OrderResult, is_better
from octoplan_solvers.staged import StagedProblem

SOLVER = "periodic"
#: Repetitions may have any number of microbatches that divides this.
_UNIT = 12
#: Sizes of the unit for which patterns are solved.
_PATTERN_SIZES = (1, 2, 3)
#: Candidates that are simulated in full: in all, and at most so many that keep the limits.
_MAX_TRIED, _MAX_FITTING = 12, 3


@dataclass(frozen=True)
class _Candidate:
    """An order for few microbatches that can be drawn out, or a pattern; and what it promises."""

    source: Repetition | Pattern
    makespan_s: float
    seconds_per_microbatch: float


def periodic_order(
    staged: StagedProblem,
    evaluate: Evaluate,
    *,
    seed: int = 0,
    policy_evaluations: int = 200,
    effort_s: float = 1.0,
) -> OrderResult:
    """Build an order from a repeating part. The same arguments give the same order.

    Parameters
    ----------
    evaluate:
        Exact simulation of an order for all microbatches.
    policy_evaluations:
        List schedules to try besides those of the portfolio.
    effort_s:
        CP-SAT's deterministic seconds for each pattern model (there are about ten for each size of the unit). Patterns
        are solved only if no list schedule keeps the busiest rank busy.

    Returns
    -------
    OrderResult
        ``feasible``, or ``unknown`` if nothing was found that keeps the limits. There is no bound.
    """
    began = time.monotonic()
    few = _few_microbatches(staged)
    candidates = list(_from_list_schedules(staged, few, policy_evaluations, seed))
    candidates += _from_patterns(staged, few, candidates, Effort(effort_s, seed, 1, deterministic=True))
    best: Order | None = None
    best_s: float | None = None
    trace: list[tuple[float, float | None, float | None]] = []
    fitting = 0
    for candidate in sorted(candidates, key=lambda one: one.makespan_s)[:_MAX_TRIED]:
        order = _in_full(staged, candidate.source)
        makespan_s = evaluate(order)
        fitting += makespan_s is not None
        if is_better(makespan_s, best_s):
            best, best_s = order, makespan_s
            trace.append((time.monotonic() - began, best_s, None))
        if fitting == _MAX_FITTING:
            break
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


def _from_list_schedules(
    staged: StagedProblem, few: StagedProblem, policy_evaluations: int, seed: int
) -> Iterator[_Candidate]:
    """List schedules under the memory limits, and under limits on the number of microbatches held.

    Where memory is ample, list scheduling puts W off for as long as there is any, and nothing repeats.
    """
    schedulers = []
    for problem in (few, *(_with_room_for(few, room) for room in _rooms(few))):
        try:
            schedulers.append(ListScheduler(problem))
        except MemoryTooSmallError:
            continue
    for scheduler in schedulers:
        for rule in portfolio(scheduler.staged):
            yield from _repetitions(staged, few, scheduler, rule.on(few))
    if schedulers:
        improved, _ = improve_policy(schedulers[0], evaluations=policy_evaluations, seed=seed)
        yield from _repetitions(staged, few, schedulers[0], improved)


def _rooms(staged: StagedProblem) -> tuple[int, ...]:
    """Return numbers of microbatches: one per rank is what 1F1B holds, twice that what fills all bubbles."""
    return staged.num_ranks, 2 * staged.num_ranks - 1, 3 * staged.num_ranks


def _with_room_for(staged: StagedProblem, num_microbatches: int) -> StagedProblem:
    """Return the problem with memory for so many microbatches on every rank, and nothing else that takes any."""
    stages, edges = np.zeros(staged.num_stages), np.zeros(len(staged.edge_bytes))
    return replace(
        staged,
        activation_bytes=np.ones(staged.num_stages),
        freed_at_input_bytes=stages,
        stash_bytes=stages,
        workspace_bytes=stages,
        edge_bytes=edges,
        state_bytes=np.zeros(staged.num_ranks),
        memory_limit_bytes=np.bincount(staged.stage_rank, minlength=staged.num_ranks)
        * float(num_microbatches),
    )


def _repetitions(
    staged: StagedProblem, few: StagedProblem, scheduler: ListScheduler, policy: Policy
) -> Iterator[_Candidate]:
    order = scheduler.schedule(policy).order
    if not keeps_limits_without_transfers(few, order):
        return
    for repetition in find_repetitions(few, order, _UNIT):
        makespan_s = repetition.makespan_for(staged.num_microbatches)
        yield _Candidate(repetition, makespan_s, repetition.seconds_per_microbatch)


def _from_patterns(
    staged: StagedProblem, few: StagedProblem, known: list[_Candidate], effort: Effort
) -> Iterator[_Candidate]:
    """Patterns that are faster than all that is known, and list schedules that follow them."""
    fastest_s = min((candidate.seconds_per_microbatch for candidate in known), default=None)
    if fastest_s is not None and fastest_s <= least_seconds_per_microbatch(few) * (1 + 1e-6):
        return
    for size in _PATTERN_SIZES:
        pattern = solve_pattern(few, size, effort, slowest_s=fastest_s)
        if pattern is None:
            continue
        rate = pattern.seconds_per_microbatch
        makespan_s = float(time_seconds(few, unroll(few, pattern)).makespan)
        more = staged.num_microbatches - few.num_microbatches
        yield _Candidate(pattern, makespan_s + more * rate, rate)
        with contextlib.suppress(MemoryTooSmallError):
            scheduler = ListScheduler(few)
            for wait in (0.0, 0.3, 1.0):
                yield from _repetitions(staged, few, scheduler, pattern_policy(few, pattern, wait))


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
