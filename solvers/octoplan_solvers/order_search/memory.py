"""Memory of every rank in terms of the order of its ops: what is held while each of them runs (contract, section 4).

What a microbatch holds begins and ends with ops of the same rank. So with a literal ``b[x, y]``, "x comes before y",
the bytes held while op y runs are a sum over holdings of ``size * (b[begin, y] - b[end, y])``, and a limit on them is
a linear constraint. Only received tensors need times as well: one that y does not consume is there when y ends,
unless its consumer came before or it arrives later. What a rank holds while it idles is left out, which makes the
constraint weaker than a simulation; `octoplan_solvers.order_search.memory_over_time` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.integer_times import RankMemory
from octoplan_solvers.order_search.precedences import all_that_follows
from octoplan_solvers.order_search.variables import Message, Variables, consumer, producer
from octoplan_solvers.order_search.window import AFTER, BEFORE, INSIDE, Op


@dataclass(frozen=True, slots=True)
class _Holding:
    """Units held from one op of the rank to the end of another; the stash begins at the end of I, others at a start.

    Either op may lie before or after the window.
    """

    begin: Op
    end: Op
    size: int


def add_memory(model: cp_model.CpModel, variables: Variables, known: list[tuple[Op, Op]]) -> None:
    """Limit what every rank holds while an op runs, wherever it has a limit.

    Parameters
    ----------
    known:
        Pairs of ops of which the first always comes before the second.
    """
    staged = variables.window.staged
    follows: dict[Op, set[Op]] = {}
    for rank in np.flatnonzero(np.isfinite(staged.memory_limit_bytes)).tolist():
        if not variables.window.ops[rank] or _precedences_are_enough(variables, rank):
            continue
        follows = follows or all_that_follows(variables.start, known)
        sequence = _Sequence(model, variables, follows)
        _limit_rank(model, variables, rank, sequence)


def _precedences_are_enough(variables: Variables, rank: int) -> bool:
    """Tell whether `precedences` says it all: one stage, one kind of backward, only activations and workspace."""
    window, staged = variables.window, variables.window.staged
    own = np.flatnonzero(staged.stage_rank == rank)
    if len(own) != 1 or window.may_choose[own[0]].any():
        return False
    fused = window.is_fused[own[0]]
    if fused.any() != fused.all():
        return False
    near = staged.edge_crosses & ((staged.edge_source == own[0]) | (staged.edge_destination == own[0]))
    split_terms = 0.0 if fused.all() else staged.freed_at_input_bytes[own[0]] + staged.stash_bytes[own[0]]
    if staged.edge_bytes[near].any() or split_terms != 0:
        return False
    room = staged.memory_limit_bytes[rank] - staged.state_bytes[rank]
    return bool(staged.activation_bytes[own[0]] + staged.workspace_bytes[own[0]] <= room)


class _Sequence:
    """Literals for the order of two ops of one rank."""

    def __init__(self, model: cp_model.CpModel, variables: Variables, follows: dict[Op, set[Op]]) -> None:
        self._model = model
        self._variables = variables
        self._follows = follows
        self._literals: dict[tuple[Op, Op], cp_model.IntVar] = {}

    def before(self, first: Op, second: Op) -> cp_model.LinearExprT:
        """Return 1 if the first op comes before the second, 0 if not; the second is inside the window."""
        if first not in self._variables.start:
            return int(self._variables.place(first) == BEFORE)
        if second in self._follows[first]:
            return 1
        if first == second or first in self._follows[second]:
            return 0
        if (first, second) not in self._literals:
            self._add(first, second)
        return self._literals[first, second]

    def _add(self, first: Op, second: Op) -> None:
        start, end = self._variables.start, self._variables.end
        literal = self._model.new_bool_var(f"{first}<{second}")
        self._model.add(start[second] >= end[first]).only_enforce_if(literal)
        self._model.add(start[first] >= end[second]).only_enforce_if(~literal)
        self._literals[first, second] = literal
        self._literals[second, first] = ~literal


def _limit_rank(model: cp_model.CpModel, variables: Variables, rank: int, sequence: _Sequence) -> None:
    staged = variables.window.staged
    memory = RankMemory.of(staged, rank)
    holdings = [holding for holding in _holdings(variables, rank, memory) if holding.size > 0]
    received = _received(variables, rank) if staged.edge_bytes[staged.edge_crosses].any() else []
    for op in variables.window.ops[rank]:
        if _may_take_no_time(variables, op):
            continue
        held: cp_model.LinearExprT = memory.units(float(staged.workspace_bytes[op[0]]))
        for holding in holdings:
            held += holding.size * _is_held(holding, op, sequence)
        for message in received:
            size = memory.units(float(staged.edge_bytes[message[0]]))
            held += size * _is_waiting(model, variables, message, op, sequence)
        limit = model.add(held <= memory.capacity)
        if op[1] == 2 and (op[0], op[2]) in variables.fused:
            limit.only_enforce_if(~variables.fused[op[0], op[2]])


def _may_take_no_time(variables: Variables, op: Op) -> bool:
    """What an op of no length holds while it runs, it never holds."""
    stage, kind, _ = op
    forward, apart, weight, together = variables.window.times.duration[stage].tolist()
    shortest = (forward, min(apart, together), weight)
    return bool(shortest[kind] == 0)


def _is_held(holding: _Holding, op: Op, sequence: _Sequence) -> cp_model.LinearExprT:
    """Return 1 if a holding is there while an op runs, else 0."""
    starts_with_op = holding.begin == op and holding.begin[1] == 0
    return int(starts_with_op) + sequence.before(holding.begin, op) - sequence.before(holding.end, op)


def _is_waiting(
    model: cp_model.CpModel, variables: Variables, message: Message, op: Op, sequence: _Sequence
) -> cp_model.LinearExprT:
    """Return something that is 1 at least if a received tensor waits when an op ends, else 0 at least."""
    receiver = consumer(variables.window.staged, message)
    used = sequence.before(receiver, op) if receiver != op else 1
    if isinstance(used, int) and used == 1:
        return 0
    waits = model.new_bool_var("")
    arrives_later = model.add(arrival_ceil(variables, message) >= variables.end[op])
    arrives_later.only_enforce_if([~waits] if isinstance(used, int) else [~waits, ~used])
    return waits


def _holdings(variables: Variables, rank: int, memory: RankMemory) -> Iterator[_Holding]:
    """Activations from the start of F to the end of what frees them; the stash from the end of I to the end of W."""
    window, staged = variables.window, variables.window.staged
    for stage in np.flatnonzero(staged.stage_rank == rank).tolist():
        activation, freed = float(staged.activation_bytes[stage]), float(staged.freed_at_input_bytes[stage])
        stash = memory.units(float(staged.stash_bytes[stage]))
        is_one_op = window.is_fused[stage] & ~window.may_choose[stage]
        begins, backward_ends, weight_ends = window.place[stage]
        ends = np.where(is_one_op, backward_ends, weight_ends)
        for microbatch in np.flatnonzero((begins != AFTER) & (ends != BEFORE)).tolist():
            forward, backward, weight = ((stage, kind, microbatch) for kind in range(3))
            if is_one_op[microbatch]:
                yield _Holding(forward, backward, memory.units(activation))
            else:
                yield _Holding(forward, backward, memory.units(freed))
                yield _Holding(forward, weight, memory.units(activation - freed))
                yield _Holding(backward, weight, stash)


def _received(variables: Variables, rank: int) -> list[Message]:
    """Tensors from other ranks that may wait here while the window runs."""
    staged = variables.window.staged
    seen = (variables.producer_place != AFTER) & (variables.consumer_place != BEFORE)
    here = np.isin(staged.edge_pair, np.flatnonzero(staged.pairs[:, 1] == rank))
    found = np.argwhere(seen & here[:, :, None]).tolist()
    return [(edge, direction, microbatch) for edge, direction, microbatch in found]


def arrival_ceil(variables: Variables, message: Message) -> cp_model.LinearExprT:
    """Arrival of a message, never rounded to before its true arrival."""
    window = variables.window
    delay = int(window.times.delay_ceil[message[:2]])
    if message in variables.message_start:
        return variables.message_start[message] + delay
    if variables.producer_place[message] == INSIDE:
        sender = producer(window.staged, message)
        rounded = int((window.times.duration_ceil - window.times.duration)[sender[0]].max())
        return variables.end[sender] + rounded + delay
    assert window.timing is not None
    return int(window.timing.message_start[message]) + delay
