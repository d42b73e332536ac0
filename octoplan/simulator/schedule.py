"""`Schedule`: the orders of ops and of messages that fully determine a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from octoplan.simulator.kernels import locate_ops, longest_path_kernel, replay_kernel, stage_edge_lists
from octoplan_schemas import InputError, transfer_words
from octoplan_solvers.ops import KIND_LETTERS, FloatArray, IntArray, decode
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem


@dataclass(frozen=True)
class EdgeLists:
    """Crossing edges by stage (CSR): those that come in from earlier stages, those that go out to later ones."""

    in_begin: IntArray
    in_edges: IntArray
    out_begin: IntArray
    out_edges: IntArray

    @classmethod
    def of(cls, staged: StagedProblem) -> EdgeLists:
        """Index the edges that cross ranks."""
        in_lists = stage_edge_lists(staged.edge_destination, staged.edge_crosses, staged.num_stages)
        out_lists = stage_edge_lists(staged.edge_source, staged.edge_crosses, staged.num_stages)
        return cls(*in_lists, *out_lists)


@dataclass(frozen=True)
class Schedule:
    """Compute ops in program order by rank, messages in first-in-first-out order by directed rank pair."""

    staged: StagedProblem
    order: Order
    #: Message codes ``(edge * 2 + direction) * num_microbatches + microbatch``, pair after pair.
    messages: IntArray
    pair_begin: IntArray

    @cached_property
    def edge_lists(self) -> EdgeLists:
        """Crossing edges by stage."""
        return EdgeLists.of(self.staged)

    def graph_arguments(self) -> tuple[Any, ...]:
        """Return the graph as the longest-path kernels take it."""
        staged, order, lists = self.staged, self.order, self.edge_lists
        return (
            order.ops,
            order.rank_begin,
            order.num_microbatches,
            staged.duration_s,
            lists.in_begin,
            lists.in_edges,
            lists.out_begin,
            lists.out_edges,
            staged.edge_source,
            staged.edge_destination,
            self.messages,
            self.pair_begin,
            staged.transfer_s,
            staged.latency_s,
        )

    def word(self, node: int) -> str:
        """Return the op word of a compute op (its index), or the SEND word of a message (N + its index)."""
        num_microbatches = self.order.num_microbatches
        if node < len(self.order.ops):
            stage, kind, microbatch = decode(int(self.order.ops[node]), num_microbatches)
            return f"{stage}{KIND_LETTERS[kind]}{microbatch}"
        slot, microbatch = divmod(int(self.messages[node - len(self.order.ops)]), num_microbatches)
        edge, direction = divmod(slot, 2)
        ends = int(self.staged.edge_source[edge]), int(self.staged.edge_destination[edge])
        source, destination = ends if direction == 0 else ends[::-1]
        return transfer_words(source, destination, "FB"[direction], microbatch)[0]


@dataclass(frozen=True)
class Replay:
    """A schedule with one global order in which all of it can be executed."""

    schedule: Schedule
    #: ``(N,)`` op indices by end time.
    global_order: IntArray
    #: ``(Q,)`` message codes in the order in which they can be sent.
    message_order: IntArray
    #: ``(N,)`` how many of these can be sent once each op of the global order has ended; None: all that it makes.
    sent_after: IntArray | None = None


def replay(staged: StagedProblem, order: Order) -> Replay:
    """Run fixed compute orders; every transfer goes as soon as its producer has ended, or in the order that is given.

    Raises
    ------
    InputError
        If the orders wait on themselves.
    """
    if order.messages is not None:
        return _replay_messages(staged, order, order.messages)
    lists = EdgeLists.of(staged)
    global_order, message_order = replay_kernel(
        order.ops,
        order.rank_begin,
        staged.num_microbatches,
        staged.duration_s,
        lists.in_begin,
        lists.in_edges,
        lists.out_begin,
        lists.out_edges,
        staged.edge_source,
        staged.edge_destination,
        staged.edge_pair,
        staged.transfer_s,
        staged.latency_s,
        len(staged.pairs),
    )
    _require_all(len(global_order), len(order.ops), "ops")
    messages, pair_begin = group_by_pair(staged, message_order)
    return Replay(Schedule(staged, order, messages, pair_begin), global_order, message_order)


def _replay_messages(staged: StagedProblem, order: Order, message_codes: IntArray) -> Replay:
    """Run fixed orders of ops and messages. A message stands behind the last of all ops that it waits for."""
    messages, pair_begin = group_by_pair(staged, message_codes)
    schedule = Schedule(staged, order, messages, pair_begin)
    _, end, _, _, sequence, _ = longest_path_kernel(*schedule.graph_arguments())
    num_ops = len(order.ops)
    _require_all(len(sequence), num_ops + len(messages), "ops and messages")
    place = np.empty(len(sequence), np.int64)
    place[sequence] = np.arange(len(sequence))
    global_order = np.lexsort((place[:num_ops], end)).astype(np.int64)
    turn = np.empty(num_ops, np.int64)
    turn[global_order] = np.arange(num_ops)
    sent_at = turn[_producers(staged, order, messages)]
    for first, last in pairwise(pair_begin.tolist()):
        sent_at[first:last] = np.maximum.accumulate(sent_at[first:last])
    sent_after = np.bincount(sent_at, minlength=num_ops).astype(np.int64)
    return Replay(schedule, global_order, messages[np.argsort(sent_at, kind="stable")], sent_after)


def _require_all(done: int, number: int, what: str) -> None:
    if done < number:
        raise InputError(f"the order waits on itself: only {done} of {number} {what} can run")


def _producers(staged: StagedProblem, order: Order, messages: IntArray) -> IntArray:
    """Return the index of the op that makes each message."""
    forward, backward, _ = locate_ops(order.ops, staged.num_stages, order.num_microbatches)
    slot, microbatch = np.divmod(messages, order.num_microbatches)
    edge, direction = np.divmod(slot, 2)
    makers: IntArray = np.where(
        direction == 0,
        forward[staged.edge_source[edge], microbatch],
        backward[staged.edge_destination[edge], microbatch],
    )
    return makers


def group_by_pair(staged: StagedProblem, message_codes: IntArray) -> tuple[IntArray, IntArray]:
    """Group message codes by directed rank pair, keeping their order; return them and where pairs begin."""
    pair = staged.edge_pair.reshape(-1)[message_codes // staged.num_microbatches]
    grouped = message_codes[np.argsort(pair, kind="stable")]
    begin = np.searchsorted(np.sort(pair), np.arange(len(staged.pairs) + 1))
    return grouped, begin.astype(np.int64)


def received_bytes(staged: StagedProblem) -> tuple[FloatArray, FloatArray]:
    """Return ``(S,)`` bytes that F, and I or B, of each stage receive from other ranks."""
    forward = np.zeros(staged.num_stages)
    backward = np.zeros(staged.num_stages)
    crossing = staged.edge_crosses
    np.add.at(forward, staged.edge_destination[crossing], staged.edge_bytes[crossing])
    np.add.at(backward, staged.edge_source[crossing], staged.edge_bytes[crossing])
    return forward, backward
