"""Variables of the order model, and what its constraints look up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.ops import BACKWARD_WEIGHT, FORWARD, IntArray
from octoplan_solvers.order_search.window import INSIDE, Op, Window
from octoplan_solvers.staged import StagedProblem

#: A message: edge, direction (0: activation, 1: gradient), microbatch.
Message = tuple[int, int, int]


@dataclass(frozen=True)
class Variables:
    """Start of every op inside the window, and of every message that may have to queue."""

    window: Window
    #: No time in the model is later.
    horizon: int
    start: dict[Op, cp_model.IntVar]
    #: Length and end of every op inside.
    length: dict[Op, cp_model.LinearExprT]
    end: dict[Op, cp_model.LinearExprT]
    #: Whether a backward is one B, by stage and microbatch, where there is a choice. Then W takes no time and starts
    #: at the end of B, so that what W frees is freed then.
    fused: dict[tuple[int, int], cp_model.IntVar]
    message_start: dict[Message, cp_model.IntVar]
    makespan: cp_model.IntVar
    #: ``(E, 2, M)``: place of each message's producer and consumer.
    producer_place: IntArray
    consumer_place: IntArray

    def place(self, op: Op) -> int:
        """Tell whether an op is before, inside or after the window."""
        return int(self.window.place[op])

    def crosses(self, message: Message) -> bool:
        """Tell whether a message goes to another rank."""
        return bool(self.window.staged.edge_crosses[message[0]])

    def transfer(self, message: Message) -> int:
        """Units for which a message keeps its rank pair busy."""
        return int(self.window.times.transfer[message[:2]])

    def delay(self, message: Message) -> int:
        """Units from the start of a message to its arrival; 0 if it stays on its rank."""
        times = self.window.times
        return int(times.transfer[message[:2]] + times.latency[message[:2]]) if self.crosses(message) else 0

    def departure(self, message: Message) -> cp_model.LinearExprT:
        """Start of a message whose producer is inside."""
        if message in self.message_start:
            return self.message_start[message]
        return self.end[producer(self.window.staged, message)]

    def queued(self) -> dict[int, list[Message]]:
        """Messages that may have to queue, by directed rank pair."""
        by_pair: dict[int, list[Message]] = defaultdict(list)
        for message in self.message_start:
            by_pair[int(self.window.staged.edge_pair[message[:2]])].append(message)
        return by_pair


def add_variables(model: cp_model.CpModel, window: Window, horizon: int, largest_makespan: int) -> Variables:
    """Create the variables."""
    staged, place = window.staged, window.place
    start = {
        op: model.new_int_var(int(window.rank_release[rank]), horizon, f"start{op}")
        for rank, ops in enumerate(window.ops)
        for op in ops
    }
    fused = {
        (stage, microbatch): model.new_bool_var(f"fused{stage, microbatch}")
        for stage, microbatch in np.argwhere(window.may_choose).tolist()
    }
    length = {op: _length(window, op, fused.get((op[0], op[2]))) for op in start}
    end = {op: _end(model, start[op], length[op], horizon) for op in start}
    source, destination = staged.edge_source, staged.edge_destination
    producer_place = np.stack([place[source, 0], place[destination, 1]], axis=1)
    consumer_place = np.stack([place[destination, 0], place[source, 1]], axis=1)
    queued = np.isin(staged.edge_pair, list(queued_pairs(staged)))
    messages = {
        (edge, direction, microbatch): model.new_int_var(0, horizon, f"message{edge, direction, microbatch}")
        for edge, direction, microbatch in np.argwhere(
            queued[:, :, None] & (producer_place == INSIDE)
        ).tolist()
    }
    makespan = model.new_int_var(0, largest_makespan, "makespan")
    return Variables(
        window, horizon, start, length, end, fused, messages, makespan, producer_place, consumer_place
    )


def _length(window: Window, op: Op, fused: cp_model.IntVar | None) -> cp_model.LinearExprT:
    stage, kind, microbatch = op
    forward, apart, weight, together = window.times.duration[stage].tolist()
    if kind == FORWARD:
        return int(forward)
    if kind == BACKWARD_WEIGHT:
        return int(weight) if fused is None else weight - weight * fused
    if fused is None:
        return int(together if window.is_fused[stage, microbatch] else apart)
    return apart + (together - apart) * fused


def _end(
    model: cp_model.CpModel, start: cp_model.IntVar, length: cp_model.LinearExprT, horizon: int
) -> cp_model.LinearExprT:
    """Return the end as an expression of one variable, as intervals want it."""
    if isinstance(length, int):
        return start + length
    end = model.new_int_var(0, horizon, "")
    model.add(end == start + length)
    return end


def producer(staged: StagedProblem, message: Message) -> Op:
    """Return the op whose end lets a message start."""
    edge, direction, microbatch = message
    stage = staged.edge_source[edge] if direction == 0 else staged.edge_destination[edge]
    return int(stage), direction, microbatch


def consumer(staged: StagedProblem, message: Message) -> Op:
    """Return the op that waits for a message."""
    edge, direction, microbatch = message
    stage = staged.edge_destination[edge] if direction == 0 else staged.edge_source[edge]
    return int(stage), direction, microbatch


def inputs_of(staged: StagedProblem, op: Op) -> Iterator[Message]:
    """Yield what an op receives from other stages, on its own rank or another."""
    stage, kind, microbatch = op
    if kind < 2:
        ends = staged.edge_destination if kind == 0 else staged.edge_source
        for edge in np.flatnonzero(ends == stage).tolist():
            yield edge, kind, microbatch


def outputs_of(staged: StagedProblem, op: Op) -> Iterator[Message]:
    """Yield what an op hands to other stages, on its own rank or another."""
    stage, kind, microbatch = op
    if kind < 2:
        ends = staged.edge_source if kind == 0 else staged.edge_destination
        for edge in np.flatnonzero(ends == stage).tolist():
            yield edge, kind, microbatch


def queued_pairs(staged: StagedProblem) -> set[int]:
    """Return the rank pairs on which a message may find another one under way.

    The producers of a pair's messages run one after another on one rank. If each has a single message for the pair
    and takes at least as long as the longest transfer, the one before has always left.
    """
    queued = set()
    for pair in range(len(staged.pairs)):
        used = [(int(edge), int(way)) for edge, way in np.argwhere(staged.edge_pair == pair)]
        producers = [producer(staged, (edge, way, 0))[:2] for edge, way in used]
        longest = max(staged.transfer_s[use] for use in used)
        kinds = [(0, 0), (1, 3)] if staged.split_backward else [(0, 0), (3, 3)]
        shortest = min(staged.duration_s[stage, kind] for stage, way in producers for kind in kinds[way])
        if longest > 0 and (longest > shortest or len(set(producers)) < len(producers)):
            queued.add(pair)
    return queued
