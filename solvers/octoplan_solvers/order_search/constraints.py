"""Constraints of the order model, one function per family; memory and exact starts have modules of their own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.memory import add_memory
from octoplan_solvers.order_search.variables import (
    Variables,
    consumer,
    inputs_of,
    outputs_of,
    producer,
)
from octoplan_solvers.order_search.window import AFTER, BEFORE


def add_constraints(model: cp_model.CpModel, variables: Variables) -> None:
    """Add every family: what all simulations of orders satisfy, and then some more schedules."""
    _one_op_at_a_time(model, variables)
    _microbatches_in_order(model, variables)
    _others_keep_their_order(model, variables)
    _inputs_arrive(model, variables)
    _links_carry_one_message_at_a_time(model, variables)
    _makespan(model, variables)
    add_memory(model, variables)


def _one_op_at_a_time(model: cp_model.CpModel, variables: Variables) -> None:
    for ops in variables.window.ops:
        model.add_no_overlap(
            model.new_fixed_size_interval_var(variables.start[op], variables.duration(op), f"op{op}")
            for op in ops
        )


def _microbatches_in_order(model: cp_model.CpModel, variables: Variables) -> None:
    """Of the same stage and kind: see `octoplan_solvers.order_search.window.sort_by_microbatch`."""
    for op, start in variables.start.items():
        stage, kind, microbatch = op
        before = stage, kind, microbatch - 1
        if before in variables.start:
            model.add(start >= variables.end(before))


def _others_keep_their_order(model: cp_model.CpModel, variables: Variables) -> None:
    window = variables.window
    for ops in window.ops:
        for before, after in pairwise(op for op in ops if not window.is_free[op]):
            model.add(variables.start[after] >= variables.end(before))


def _inputs_arrive(model: cp_model.CpModel, variables: Variables) -> None:
    staged = variables.window.staged
    for op, start in variables.start.items():
        stage, kind, microbatch = op
        own = stage, kind - 1, microbatch
        if kind > 0 and own in variables.start:
            model.add(start >= variables.end(own))
        for message in inputs_of(staged, op):
            if producer(staged, message) in variables.start:
                model.add(start >= variables.departure(message) + variables.delay(message))
            elif variables.crosses(message):
                assert variables.window.timing is not None
                departed = int(variables.window.timing.message_start[message])
                model.add(start >= departed + variables.delay(message))


def _links_carry_one_message_at_a_time(model: cp_model.CpModel, variables: Variables) -> None:
    """In any order: a superset of first in, first out, which `exact_starts` adds."""
    for pair, messages in variables.queued().items():
        release = _pair_release(variables, pair)
        intervals = []
        for message in messages:
            start, busy = variables.message_start[message], variables.transfer(message)
            edge, direction, microbatch = message
            before = edge, direction, microbatch - 1
            model.add(start >= variables.end(producer(variables.window.staged, message)))
            model.add(start >= release)
            if before in variables.message_start:
                model.add(start >= variables.message_start[before] + busy)
            intervals.append(model.new_fixed_size_interval_var(start, busy, f"transfer{message}"))
        model.add_no_overlap(intervals)


def _pair_release(variables: Variables, pair: int) -> int:
    """Return when the last message from before the window leaves the pair free."""
    window = variables.window
    if window.timing is None:
        return 0
    earlier = (window.staged.edge_pair == pair)[:, :, None] & (variables.producer_place == BEFORE)
    left = window.timing.message_start + window.times.transfer[:, :, None]
    return int(np.max(left, where=earlier, initial=0))


def _pair_tail(variables: Variables, pair: int) -> int:
    """Return the tail of the first message that the pair carries after the window."""
    window = variables.window
    if window.timing is None:
        return 0
    later = (window.staged.edge_pair == pair)[:, :, None] & (variables.producer_place == AFTER)
    return int(np.max(window.timing.message_tail, where=later, initial=0))


def _makespan(model: cp_model.CpModel, variables: Variables) -> None:
    """The end of each op inside, plus the longest path of what waits for it after the window."""
    window = variables.window
    for rank, ops in enumerate(window.ops):
        for op in ops:
            model.add(variables.makespan >= variables.end(op) + int(window.rank_tail[rank]))
            for message in outputs_of(window.staged, op):
                after = consumer(window.staged, message)
                if window.timing is not None and variables.place(after) == AFTER:
                    rest = variables.delay(message) + int(window.timing.tail[after])
                    model.add(variables.makespan >= variables.departure(message) + rest)
    for pair, messages in variables.queued().items():
        tail = _pair_tail(variables, pair)
        for message in messages:
            left = variables.message_start[message] + variables.transfer(message)
            model.add(variables.makespan >= left + tail)


