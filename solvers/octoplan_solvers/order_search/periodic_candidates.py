"""Where periodic orders come from: list schedules that repeat themselves, and patterns."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from octoplan_solvers.order_search.pattern import Pattern, solve_pattern, unroll
from octoplan_solvers.order_search.repetition import Repetition, find_repetitions, repeat, time_seconds
from octoplan_solvers.staged import StagedProblem
from octoplan_solvers.stopping import is_stopped

#: A repetition has at most so many microbatches.
_LARGEST_UNIT = 12
#: Sizes of the unit for which patterns are solved.
_PATTERN_SIZES = (1, 2, 3)


@dataclass(frozen=True)
class Candidate:
    """How to build an order, the makespan that it promises, and its seconds per microbatch in the long run."""

    build: Callable[[], Order | None]
    makespan_s: float
    rate_s: float


@dataclass(frozen=True)
class Choice:
    """A way to build a list schedule for any number of microbatches."""

    policy: Policy
    #: Microbatches that each rank has room for instead of what its memory holds.
    room: int | None = None

    def order(self, staged: StagedProblem) -> Order:
        """Build it."""
        problem = staged if self.room is None else _with_room_for(staged, self.room)
        return ListScheduler(problem).schedule(self.policy).order


def until_stopped(candidates: Iterable[Candidate], stop: threading.Event | None) -> Iterator[Candidate]:
    """Yield candidates until the event is set, the first one at least."""
    for candidate in candidates:
        yield candidate
        if is_stopped(stop):
            return


def all_choices(
    few: StagedProblem, policy_evaluations: int, seed: int, stop: threading.Event | None = None
) -> list[Choice]:
    """Return choices whose list schedules keep the limits (transfers apart), the shortest schedules first.

    Where memory is ample, list scheduling puts W off for as long as there is any, and nothing repeats. Hence also
    some limits on the number of microbatches held: one per rank is what 1F1B holds, twice that fills all bubbles.
    """
    rules = [rule.on(few) for rule in portfolio(few)]
    choices = [
        Choice(policy, room)
        for room in (None, few.num_ranks, 2 * few.num_ranks - 1, 3 * few.num_ranks)
        for policy in rules
    ]
    try:
        improved, _ = improve_policy(
            ListScheduler(few),
            evaluations=policy_evaluations,
            seed=seed,
            should_stop=lambda: is_stopped(stop),
        )
        choices.append(Choice(improved))
    except MemoryTooSmallError:
        choices = [choice for choice in choices if choice.room is not None]
    priced: list[tuple[float, int, Choice]] = []
    for choice in choices:
        order = choice.order(few)
        if keeps_limits_without_transfers(few, order):
            priced.append((float(time_seconds(few, order).makespan), len(priced), choice))
        if is_stopped(stop):
            break
    return [choice for _, _, choice in sorted(priced, key=lambda entry: entry[:2])]


def from_list_schedules(
    staged: StagedProblem, few: StagedProblem, choices: Sequence[Choice]
) -> Iterator[Candidate]:
    """Draw out list schedules of a few microbatches to all of them."""
    for choice in choices:
        order = choice.order(few)
        repetitions = find_repetitions(few, order, _LARGEST_UNIT)
        if few.num_microbatches == staged.num_microbatches:
            rate_s = min((repetition.seconds_per_microbatch for repetition in repetitions), default=math.inf)
            yield Candidate(partial(choice.order, staged), float(time_seconds(few, order).makespan), rate_s)
            continue
        for repetition in repetitions:
            yield Candidate(
                partial(_draw_out, staged, few, choice, repetition),
                repetition.makespan_for(staged.num_microbatches),
                repetition.seconds_per_microbatch,
            )


def _draw_out(
    staged: StagedProblem, few: StagedProblem, choice: Choice, repetition: Repetition
) -> Order | None:
    """Repeat; where it does not come out even, repeat a schedule of a few more microbatches."""
    unit = repetition.num_microbatches
    rest = (staged.num_microbatches - few.num_microbatches) % unit
    if rest == 0:
        return repeat(repetition, staged.num_microbatches)
    more = replace(few, num_microbatches=few.num_microbatches + rest)
    for other in find_repetitions(more, choice.order(more), _LARGEST_UNIT):
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


def from_patterns(
    staged: StagedProblem, few: StagedProblem, fastest_s: float, effort: Effort
) -> Iterator[Candidate]:
    """Patterns of fewer seconds per microbatch than is known, and list schedules that follow them.

    Where the least period of one size could not be settled, larger ones are not tried.
    """
    if staged.num_microbatches < 4 * staged.num_stages:
        return  # the pipeline is filled and drained before anything repeats itself
    for size in _PATTERN_SIZES:
        slowest_s = fastest_s if math.isfinite(fastest_s) else None
        pattern = solve_pattern(few, size, effort, slowest_s=slowest_s)
        if pattern is None:
            continue
        rate_s = pattern.seconds_per_microbatch
        makespan_s = float(time_seconds(few, unroll(few, pattern)).makespan)
        more = staged.num_microbatches - few.num_microbatches
        yield Candidate(partial(unroll, staged, pattern), makespan_s + more * rate_s, rate_s)
        yield from from_list_schedules(staged, few, _choices_like(few, pattern))
        if pattern.period_bound < pattern.period * 0.99:
            return
        fastest_s = min(fastest_s, rate_s)


def _choices_like(few: StagedProblem, pattern: Pattern) -> list[Choice]:
    try:
        ListScheduler(few)
    except MemoryTooSmallError:
        return []
    choices = [Choice(pattern_policy(few, pattern, wait)) for wait in (0.0, 0.3, 1.0)]
    return [choice for choice in choices if keeps_limits_without_transfers(few, choice.order(few))]


def pattern_policy(staged: StagedProblem, pattern: Pattern, wait: float) -> Policy:
    """Return the policy that prefers what comes first in the pattern."""
    base = PolicyRule(wait=wait).on(staged)
    bias = base.bias.copy()
    start = pattern.offset.mean(axis=2) / pattern.period * pattern.num_microbatches
    bias[:, : start.shape[1]] = start
    return base.with_bias(bias)
