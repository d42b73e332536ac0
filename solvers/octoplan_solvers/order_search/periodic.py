"""`periodic_order`: an order for any number of microbatches, in time that does not grow with it (but for writing it).

Candidates are list schedules of a few microbatches that repeat themselves, and the patterns of `solve_pattern`, both
unrolled and as priorities of a list schedule. Each is priced for the full number by a straight line; the best ones
are written down in full and simulated.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

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
#: A repetition has at most so many microbatches.
_LARGEST_UNIT = 12
#: Sizes of the unit for which patterns are solved.
_PATTERN_SIZES = (1, 2, 3)
#: Candidates that are simulated in full: in all, and at most so many that keep the limits.
_MAX_TRIED, _MAX_FITTING = 12, 3


@dataclass(frozen=True)
class _Candidate:
    """How to build an order, the makespan that it promises, and its seconds per microbatch in the long run."""

    build: Callable[[], Order | None]
    makespan_s: float
    rate_s: float


def periodic_order(
    staged: StagedProblem,
    evaluate: Evaluate,
    *,
    seed: int = 0,
    policy_evaluations: int = 200,
    effort_s: float = 0.5,
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

    Returns
    -------
    OrderResult
        ``feasible``, or ``unknown`` if nothing was found that keeps the limits. There is no bound.
    """
    began = time.monotonic()
    candidates: list[_Candidate] = []
    for few in _problems_of_few_microbatches(staged):
        candidates += _from_list_schedules(staged, few, policy_evaluations, seed)
        if _keeps_busy(staged, candidates):
            break
    else:
        effort = Effort(effort_s, seed, num_workers=1, deterministic=True)
        candidates += _from_patterns(staged, few, candidates, effort)
    best: tuple[Order, float] | None = None
    trace: list[tuple[float, float | None, float | None]] = []
    for order, makespan_s in _in_full(candidates, evaluate):
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


def _problems_of_few_microbatches(staged: StagedProblem) -> Iterator[StagedProblem]:
    """First enough to fill the pipeline many times over, then more, as some list schedules settle slowly."""
    enough = max(144, 12 * staged.num_stages)
    for number in (enough, 3 * enough):
        yield replace(staged, num_microbatches=min(staged.num_microbatches, number))
        if number >= staged.num_microbatches:
            return


def _keeps_busy(staged: StagedProblem, candidates: list[_Candidate]) -> bool:
    """Tell whether some candidate keeps the busiest rank (or link) busy all the time."""
    fastest_s = min((candidate.rate_s for candidate in candidates), default=math.inf)
    return fastest_s <= least_seconds_per_microbatch(staged) * (1 + 1e-6)


def _in_full(candidates: list[_Candidate], evaluate: Evaluate) -> Iterator[tuple[Order, float]]:
    """Write down and simulate what promises most, until a few orders have kept the limits."""
    fitting = 0
    for candidate in sorted(candidates, key=lambda one: one.makespan_s)[:_MAX_TRIED]:
        order = candidate.build()
        makespan_s = None if order is None else evaluate(order)
        if order is not None and makespan_s is not None:
            yield order, makespan_s
            fitting += 1
        if fitting == _MAX_FITTING:
            return


def _from_list_schedules(
    staged: StagedProblem, few: StagedProblem, policy_evaluations: int, seed: int
) -> Iterator[_Candidate]:
    """List schedules under the memory limits, and under limits on the number of microbatches held.

    Where memory is ample, list scheduling puts W off for as long as there is any, and nothing repeats.
    """
    for room in (None, *_rooms(few)):
        rules = [rule.on(few) for rule in portfolio(few)]
        try:
            if room is None:
                rules.append(improve_policy(ListScheduler(few), evaluations=policy_evaluations, seed=seed)[0])
            for policy in rules:
                yield from _listed(staged, few, policy, room)
        except MemoryTooSmallError:
            continue


def _rooms(staged: StagedProblem) -> tuple[int, ...]:
    """Return numbers of microbatches: one per rank is what 1F1B holds, twice that what fills all bubbles."""
    return staged.num_ranks, 2 * staged.num_ranks - 1, 3 * staged.num_ranks


def _listed(
    staged: StagedProblem, few: StagedProblem, policy: Policy, room: int | None = None
) -> Iterator[_Candidate]:
    """The list schedule of a few microbatches, drawn out to all of them."""
    order = _list_schedule(few, policy, room)
    if not keeps_limits_without_transfers(few, order):
        return
    repetitions = find_repetitions(few, order, _LARGEST_UNIT)
    if few.num_microbatches == staged.num_microbatches:
        rate_s = min((repetition.seconds_per_microbatch for repetition in repetitions), default=math.inf)
        yield _Candidate(lambda: order, float(time_seconds(few, order).makespan), rate_s)
        return
    for repetition in repetitions:
        yield _Candidate(
            partial(_draw_out, staged, few, policy, room, repetition),
            repetition.makespan_for(staged.num_microbatches),
            repetition.seconds_per_microbatch,
        )


def _list_schedule(staged: StagedProblem, policy: Policy, room: int | None) -> Order:
    problem = staged if room is None else _with_room_for(staged, room)
    return ListScheduler(problem).schedule(policy).order


def _draw_out(
    staged: StagedProblem, few: StagedProblem, policy: Policy, room: int | None, repetition: Repetition
) -> Order | None:
    """Repeat; where it does not come out even, repeat a schedule of a few more microbatches."""
    unit = repetition.num_microbatches
    rest = (staged.num_microbatches - few.num_microbatches) % unit
    if rest == 0:
        return repeat(repetition, staged.num_microbatches)
    more = replace(few, num_microbatches=few.num_microbatches + rest)
    for other in find_repetitions(more, _list_schedule(more, policy, room), _LARGEST_UNIT):
        if other.num_microbatches == unit:
            return repeat(other, staged.num_microbatches)
    return None


def _with_room_for(staged: StagedProblem, num_microbatches: int) -> StagedProblem:
    """Return the problem with memory for so many microbatches on every rank, and nothing else that takes any."""
    zero, num_stages = np.zeros(staged.num_stages), np.zeros(staged.num_ranks)
    np.add.at(num_stages, staged.stage_rank, 1.0)
    return replace(
        staged,
        activation_bytes=np.ones(staged.num_stages),
        freed_at_input_bytes=zero,
        stash_bytes=zero,
        workspace_bytes=zero,
        edge_bytes=np.zeros(len(staged.edge_bytes)),
        state_bytes=np.zeros(staged.num_ranks),
        memory_limit_bytes=num_stages * num_microbatches,
    )


def _from_patterns(
    staged: StagedProblem, few: StagedProblem, known: list[_Candidate], effort: Effort
) -> Iterator[_Candidate]:
    """Patterns that are faster than all that is known, and list schedules that follow them."""
    if staged.num_microbatches < 4 * staged.num_stages:
        return  # the pipeline is filled and drained before anything repeats itself
    fastest_s = min((candidate.rate_s for candidate in known), default=math.inf)
    for size in _PATTERN_SIZES:
        pattern = solve_pattern(few, size, effort, slowest_s=fastest_s if math.isfinite(fastest_s) else None)
        if pattern is None:
            continue
        rate_s = pattern.seconds_per_microbatch
        makespan_s = float(time_seconds(few, unroll(few, pattern)).makespan)
        more = staged.num_microbatches - few.num_microbatches
        yield _Candidate(partial(unroll, staged, pattern), makespan_s + more * rate_s, rate_s)
        with contextlib.suppress(MemoryTooSmallError):
            for wait in (0.0, 0.3, 1.0):
                yield from _listed(staged, few, pattern_policy(few, pattern, wait))


def pattern_policy(staged: StagedProblem, pattern: Pattern, wait: float) -> Policy:
    """Return the policy that prefers what comes first in the pattern."""
    base = PolicyRule(wait=wait).on(staged)
    bias = base.bias.copy()
    start = pattern.offset.mean(axis=2) / pattern.period * pattern.num_microbatches
    bias[:, : start.shape[1]] = start
    return base.with_bias(bias)
