"""Memory of every rank in the order model: what each microbatch holds, from when to when (contract, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.integer_times import RankMemory
from octoplan_solvers.order_search.variables import Message, Variables, consumer, producer
from octoplan_solvers.order_search.window import AFTER, BEFORE, INSIDE, Op


@dataclass(frozen=True, slots=True)
class _Holding:
    """Units that a rank holds from one time to another; None: since before, or until after, the window."""

    begin: cp_model.LinearExprT | None
    end: cp_model.LinearExprT | None
    size: int


def add_memory(model: cp_model.CpModel, variables: Variables) -> None:
    """Limit what every rank holds, wherever it has a limit."""
    for rank in _limited_ranks(variables):
        _add_cumulative(model, variables, rank, RankMemory.of(variables.window.staged, rank))


def add_free_before_next(model: cp_model.CpModel, variables: Variables) -> None:
    """F of microbatch m + k starts after m is freed, if k + 1 microbatches of this stage alone are too many.

    Holds where each stage runs the microbatches in order; `add_memory` implies it, but not as a precedence.
    """
    window = variables.window
    for rank in _limited_ranks(variables):
        memory = RankMemory.of(window.staged, rank)
        for stage in np.flatnonzero(window.staged.stage_rank == rank).tolist():
            fused = window.is_fused[stage]
            if window.may_choose[stage].any() or fused.any() != fused.all():
                continue  # what is freed next need not be the oldest
            most = _most_in_flight(variables, stage, memory)
            for microbatch in range(most, window.staged.num_microbatches):
                forward = stage, 0, microbatch
                freeing = stage, 1 if fused.all() else 2, microbatch - most
                if forward in variables.start and freeing in variables.start:
                    model.add(variables.start[forward] >= variables.end[freeing])


def _limited_ranks(variables: Variables) -> list[int]:
    limited = np.flatnonzero(np.isfinite(variables.window.staged.memory_limit_bytes)).tolist()
    return [rank for rank in limited if variables.window.ops[rank]]


def _most_in_flight(variables: Variables, stage: int, memory: RankMemory) -> int:
    """Return how many microbatches a stage can hold when it starts an F, if no other stage holds any."""
    staged = variables.window.staged
    activation = memory.units(float(staged.activation_bytes[stage]))
    room = memory.capacity - memory.units(float(staged.workspace_bytes[stage])) - activation
    least = activation
    if staged.split_backward:
        after_input = staged.activation_bytes[stage] - staged.freed_at_input_bytes[stage]
        least = min(activation, memory.units(float(after_input + staged.stash_bytes[stage])))
    if least <= 0 or room < 0:
        return staged.num_microbatches
    return 1 + room // least


def _add_cumulative(model: cp_model.CpModel, variables: Variables, rank: int, memory: RankMemory) -> None:
    capacity, intervals, sizes = memory.capacity, [], []
    for holding in _holdings(variables, rank, memory):
        if holding.size <= 0:
            continue
        if holding.begin is None and holding.end is None:
            capacity -= holding.size
            continue
        begin = int(variables.window.rank_release[rank]) if holding.begin is None else holding.begin
        end = variables.horizon if holding.end is None else holding.end
        # Empty if it would end before it begins.
        length = model.new_int_var(0, variables.horizon, "")
        finish = model.new_int_var(0, 2 * variables.horizon, "")
        model.add(finish >= end)
        intervals.append(model.new_interval_var(begin, length, finish, ""))
        sizes.append(holding.size)
    if capacity < 0:
        model.add_bool_or([])
    elif sum(sizes) > capacity:
        model.add_cumulative(intervals, sizes, capacity)


def _holdings(variables: Variables, rank: int, memory: RankMemory) -> Iterator[_Holding]:
    staged = variables.window.staged
    for stage in np.flatnonzero(staged.stage_rank == rank).tolist():
        yield from _activations(variables, stage, memory)
    for op in variables.window.ops[rank]:
        size = memory.units(float(staged.workspace_bytes[op[0]]))
        yield _Holding(variables.start[op], variables.end[op], size)
    yield from _received(variables, rank, memory)


def _activations(variables: Variables, stage: int, memory: RankMemory) -> Iterator[_Holding]:
    """From the start of F to the end of what frees it; the stash from the end of I to the end of W."""
    window, staged = variables.window, variables.window.staged
    activation, freed = float(staged.activation_bytes[stage]), float(staged.freed_at_input_bytes[stage])
    is_one_op = window.is_fused[stage] & ~window.may_choose[stage]
    stash = memory.units(float(staged.stash_bytes[stage]))
    for microbatch in range(staged.num_microbatches):
        forward, backward, weight = ((stage, kind, microbatch) for kind in range(3))
        if is_one_op[microbatch]:
            yield from _between(variables, forward, backward, memory.units(activation))
        else:
            yield from _between(variables, forward, backward, memory.units(freed))
            yield from _between(variables, forward, weight, memory.units(activation - freed))
            yield from _between(variables, backward, weight, stash)


def _between(variables: Variables, first: Op, last: Op, size: int) -> Iterator[_Holding]:
    """What is held from one op (F: its start, I: its end) to the end of another, as far as the window sees it."""
    if variables.place(first) == AFTER or variables.place(last) == BEFORE or size == 0:
        return
    begin: cp_model.LinearExprT | None = None
    if first in variables.start:
        begin = variables.start[first] if first[1] == 0 else _end_ceil(variables, first)
    yield _Holding(begin, variables.end[last] if last in variables.start else None, size)


def _end_ceil(variables: Variables, op: Op) -> cp_model.LinearExprT:
    """End of an op, never rounded to before its true end."""
    times = variables.window.times
    return variables.end[op] + int((times.duration_ceil - times.duration)[op[0]].max())


def _received(variables: Variables, rank: int, memory: RankMemory) -> Iterator[_Holding]:
    """Tensors from other ranks, from their arrival to the start of their consumer."""
    window, staged = variables.window, variables.window.staged
    seen = (variables.producer_place != AFTER) & (variables.consumer_place != BEFORE)
    here = np.isin(staged.edge_pair, np.flatnonzero(staged.pairs[:, 1] == rank))
    for edge, direction, microbatch in np.argwhere(seen & here[:, :, None]).tolist():
        message = edge, direction, microbatch
        since = int(window.times.delay_ceil[edge, direction]) + _departure_ceil(variables, message)
        until = variables.start.get(consumer(staged, message))
        yield _Holding(since, until, memory.units(float(staged.edge_bytes[edge])))


def _departure_ceil(variables: Variables, message: Message) -> cp_model.LinearExprT:
    """Start of a message, never rounded to before its true start."""
    if message in variables.message_start:
        return variables.message_start[message]
    if variables.producer_place[message] == INSIDE:
        return _end_ceil(variables, producer(variables.window.staged, message))
    assert variables.window.timing is not None
    return int(variables.window.timing.message_start[message])
