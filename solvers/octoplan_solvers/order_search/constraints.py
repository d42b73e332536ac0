"""Constraints of the order model, one function per family (memory and exact starts in modules of their own)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.exact_starts import add_exact_starts
from octoplan_solvers.order_search.in_flight import add_in_flight
from octoplan_solvers.order_search.memory import add_memory
from octoplan_solvers.order_search.memory_over_time import add_memory_over_time
from octoplan_solvers.order_search.precedences import precedences
from octoplan_solvers.order_search.variables import (
    Variables,
    consumer,
    inputs_of,
    outputs_of,
    producer,
)
from octoplan_solvers.order_search.window import AFTER, BEFORE

#: Which schedules a model has as solutions.
Scope = Literal["superset", "simulations"]


def add_constraints(model: cp_model.CpModel, variables: Variables, scope: Scope) -> None:
    """Add every family.

    With the scope ``superset`` the solutions are more than the simulations, up to the names of microbatches; with
    ``simulations``, which takes the whole problem and exact times, they are the simulations themselves.
    """
    exact_starts = scope == "simulations"
    known = precedences(variables, any_names=exact_starts)
    for before, after in known:
        model.add(variables.start[after] >= variables.end[before])
    _one_op_at_a_time(model, variables)
    _inputs_arrive(model, variables)
    _links_carry_one_message_at_a_time(model, variables)
    _makespan(model, variables)
    add_memory(model, variables, known)
    add_in_flight(model, variables, any_names=exact_starts)
    if exact_starts:
        add_memory_over_time(model, variables)
        add_exact_starts(model, variables)
    else:
        _more_microbatches_in_order(model, variables)


def _one_op_at_a_time(model: cp_model.CpModel, variables: Variables) -> None:
    """A backward is one B, or I and W; of a fused one, W is but the instant at which B ends."""
    for ops in variables.window.ops:
        model.add_no_overlap(
            model.new_interval_var(variables.start[op], variables.length[op], variables.end[op], f"op{op}")
            for op in ops
        )
    for (stage, microbatch), fused in variables.fused.items():
        weight, backward = (stage, 2, microbatch), (stage, 1, microbatch)
        model.add(variables.start[weight] == variables.end[backward]).only_enforce_if(fused)


def _more_microbatches_in_order(model: cp_model.CpModel, variables: Variables) -> None:
    """Messages, and W's that may not exist."""
    for op, start in variables.start.items():
        stage, kind, microbatch = op
        before = stage, kind, microbatch - 1
        choices = [variables.fused.get((stage, m)) for m in (microbatch - 1, microbatch)]
        if kind == 2 and before in variables.start and any(choice is not None for choice in choices):
            exist = [~choice for choice in choices if choice is not None]
            model.add(start >= variables.end[before]).only_enforce_if(exist)
    for message, start in variables.message_start.items():
        edge, direction, microbatch = message
        earlier = edge, direction, microbatch - 1
        if earlier in variables.message_start:
            model.add(start >= variables.message_start[earlier] + variables.transfer(earlier))


def _inputs_arrive(model: cp_model.CpModel, variables: Variables) -> None:
    staged = variables.window.staged
    for op, start in variables.start.items():
        for message in inputs_of(staged, op):
            if not variables.crosses(message):
                continue
            if producer(staged, message) in variables.start:
                model.add(start >= variables.departure(message) + variables.delay(message))
            else:
                assert variables.window.timing is not None
                departed = int(variables.window.timing.message_start[message])
                model.add(start >= departed + variables.delay(message))


def _links_carry_one_message_at_a_time(model: cp_model.CpModel, variables: Variables) -> None:
    """In any order."""
    for pair, messages in variables.queued().items():
        release = _pair_release(variables, pair)
        intervals = []
        for message in messages:
            start, busy = variables.message_start[message], variables.transfer(message)
            model.add(start >= variables.end[producer(variables.window.staged, message)])
            model.add(start >= release)
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
            model.add(variables.makespan >= variables.end[op] + int(window.rank_tail[rank]))
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
