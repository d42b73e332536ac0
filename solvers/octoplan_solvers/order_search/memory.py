"""Memory of every rank in the order model: what each microbatch holds, from when to when (contract, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.integer_times import RankMemory
from octoplan_solvers.order_search.variables import Variables, consumer, producer
from octoplan_solvers.order_search.window import AFTER, BEFORE, INSIDE, Op


@dataclass(frozen=True, slots=True)
class _Holding:
    """Units that a rank holds from one time to another; None: since before, or until after, the window."""

    begin: cp_model.LinearExprT | None
    end: cp_model.LinearExprT | None
    size: int


def add_memory(model: cp_model.CpModel, variables: Variables) -> None:
    """Limit what every rank holds, wherever it has a limit."""
    staged = variables.window.staged
    for rank in np.flatnonzero(np.isfinite(staged.memory_limit_bytes)).tolist():
        if variables.window.ops[rank]:
            memory = RankMemory.of(staged, rank)
            _free_before_next(model, variables, rank, memory)
            if not _is_all_said(variables, rank):
                _add_cumulative(model, variables, rank, memory)


def _free_before_next(model: cp_model.CpModel, variables: Variables, rank: int, memory: RankMemory) -> None:
    """F of microbatch m + k starts after m is freed, if k + 1 microbatches of this stage alone are too many."""
    staged = variables.window.staged
    last = 2 if staged.split_backward else 1
    for stage in np.flatnonzero(staged.stage_rank == rank).tolist():
        most = _most_in_flight(variables, stage, memory)
        for op, start in variables.start.items():
            freeing = stage, last, op[2] - most
            if op[:2] == (stage, 0) and freeing in variables.start:
                model.add(start >= variables.end(freeing))


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


def _is_all_said(variables: Variables, rank: int) -> bool:
    """Tell whether `_free_before_next` is enough: one stage, and nothing but its activations and workspace."""
    staged = variables.window.staged
    own = np.flatnonzero(staged.stage_rank == rank)
    if len(own) != 1:
        return False
    near = staged.edge_crosses & ((staged.edge_source == own[0]) | (staged.edge_destination == own[0]))
    split_terms = staged.freed_at_input_bytes[own[0]] + staged.stash_bytes[own[0]]
    if staged.edge_bytes[near].any() or (staged.split_backward and split_terms != 0):
        return False
    room = staged.memory_limit_bytes[rank] - staged.state_bytes[rank]
    return bool(staged.activation_bytes[own[0]] + staged.workspace_bytes[own[0]] <= room)


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
        yield _Holding(variables.start[op], variables.end(op), size)
    yield from _received(variables, rank, memory)


def _activations(variables: Variables, stage: int, memory: RankMemory) -> Iterator[_Holding]:
    """From the start of F to the end of what frees it; the stash from the end of I to the end of W."""
    staged = variables.window.staged
    activation, freed = float(staged.activation_bytes[stage]), float(staged.freed_at_input_bytes[stage])
    forward, backward, weight = 0, 1, 2
    if not staged.split_backward:
        yield from _between(variables, stage, forward, backward, memory.units(activation))
        return
    yield from _between(variables, stage, forward, backward, memory.units(freed))
    yield from _between(variables, stage, forward, weight, memory.units(activation - freed))
    yield from _between(variables, stage, backward, weight, memory.units(float(staged.stash_bytes[stage])))


def _between(variables: Variables, stage: int, first: int, last: int, size: int) -> Iterator[_Holding]:
    """What is held from one op (F: its start, I: its end) to the end of another, as far as the window sees it."""
    place = variables.window.place[stage]
    for microbatch in np.flatnonzero((place[first] != AFTER) & (place[last] != BEFORE)).tolist():
        begin_op, end_op = (stage, first, microbatch), (stage, last, microbatch)
        begin: cp_model.LinearExprT | None = None
        if begin_op in variables.start:
            begin = variables.start[begin_op] + (0 if first == 0 else _duration_ceil(variables, begin_op))
        yield _Holding(begin, variables.end(end_op) if end_op in variables.start else None, size)


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


def _departure_ceil(variables: Variables, message: tuple[int, int, int]) -> cp_model.LinearExprT:
    """Start of a message, never rounded to before its true start."""
    if variables.producer_place[message] == INSIDE:
        if message in variables.message_start:
            return variables.message_start[message]
        sender = producer(variables.window.staged, message)
        return variables.start[sender] + _duration_ceil(variables, sender)
    assert variables.window.timing is not None
    return int(variables.window.timing.message_start[message])


def _duration_ceil(variables: Variables, op: Op) -> int:
    return int(variables.window.times.duration_ceil[op[0], op[1]])
