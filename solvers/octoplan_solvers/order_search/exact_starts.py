"""The constraint that turns the order model's schedules into simulations: nothing starts later than it must.

Without it a solution may put an op off so that what it sends arrives later and takes up memory for a shorter time; an
order has no word for that. It is heavy, hence only for small problems that need it, and right only for the whole
problem in exact integer times.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from octoplan_solvers.order_search.variables import Message, Variables, inputs_of, producer


def add_exact_starts(model: cp_model.CpModel, variables: Variables) -> None:
    """Demand that each op and message starts at the end of something that it waits for.

    (Ops without duration could vouch for each other; then some solutions are still no simulations.)
    """
    staged = variables.window.staged
    for ops in variables.window.ops:
        for op in ops:
            start = variables.start[op]
            reasons = [_equal(model, start, 0)]
            reasons += [_equal(model, start, variables.end[other]) for other in ops if other != op]
            for message in inputs_of(staged, op):
                if variables.crosses(message):
                    arrival = variables.departure(message) + variables.delay(message)
                    reasons.append(_equal(model, start, arrival))
            model.add_bool_or(reasons)
    for messages in variables.queued().values():
        for message in messages:
            _leaves_at_once(model, variables, message, messages)


def _leaves_at_once(
    model: cp_model.CpModel, variables: Variables, message: Message, messages: list[Message]
) -> None:
    start = variables.message_start[message]
    reasons = [_equal(model, start, variables.end[producer(variables.window.staged, message)])]
    for other in messages:
        if other != message:
            left = variables.message_start[other] + variables.transfer(other)
            reasons.append(_equal(model, start, left))
    model.add_bool_or(reasons)


def _equal(
    model: cp_model.CpModel, one: cp_model.LinearExprT, other: cp_model.LinearExprT
) -> cp_model.IntVar:
    """Return a literal that may hold only where the two are equal."""
    literal = model.new_bool_var("")
    model.add(one == other).only_enforce_if(literal)
    return literal
