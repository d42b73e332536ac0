"""Variables of the order model, and what its constraints look up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.ops import IntArray
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
    message_start: dict[Message, cp_model.IntVar]
    makespan: cp_model.IntVar
    #: ``(E, 2, M)``: place of each message's producer and consumer.
    producer_place: IntArray
    consumer_place: IntArray

    def duration(self, op: Op) -> int:
        """Units that an op takes."""
        return int(self.window.times.duration[op[0], op[1]])

    def end(self, op: Op) -> cp_model.LinearExprT:
        """End of an op inside."""
        return self.start[op] + self.duration(op)

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
        return self.end(producer(self.window.staged, message))

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
    source, destination = staged.edge_source, staged.edge_destination
    producer_place = np.stack([place[source, 0], place[destination, 1]], axis=1)
    consumer_place = np.stack([place[destination, 0], place[source, 1]], axis=1)
    queued = np.isin(staged.edge_pair, list(queued_pairs(staged)))
    inside = queued[:, :, None] & (producer_place == INSIDE)
    messages = {
        (edge, direction, microbatch): model.new_int_var(0, horizon, f"message{edge, direction, microbatch}")
        for edge, direction, microbatch in np.argwhere(inside).tolist()
    }
    makespan = model.new_int_var(0, largest_makespan, "makespan")
    return Variables(window, horizon, start, messages, makespan, producer_place, consumer_place)


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
        backward = 1 if staged.split_backward else 3
        shortest = min(staged.duration_s[stage, backward * way] for stage, way in producers)
        if longest > 0 and (longest > shortest or len(set(producers)) < len(producers)):
            queued.add(pair)
    return queued
