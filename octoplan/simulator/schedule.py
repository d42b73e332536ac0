"""`Schedule`: the orders of ops and of messages that fully determine a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from octoplan.simulator.kernels import replay_kernel, stage_edge_lists
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
    #: ``(Q,)`` message codes by the end of their producers.
    message_order: IntArray


def replay(staged: StagedProblem, order: Order) -> Replay:
    """Run fixed compute orders and let every transfer go as soon as its producer has ended.

    Raises
    ------
    InputError
        If the orders wait on themselves.
    """
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
    if len(global_order) < len(order.ops):
        raise InputError(
            f"the order waits on itself: only {len(global_order)} of {len(order.ops)} ops can run"
        )
    messages, pair_begin = group_by_pair(staged, message_order)
    return Replay(Schedule(staged, order, messages, pair_begin), global_order, message_order)


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
