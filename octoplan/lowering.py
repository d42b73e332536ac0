"""Lowering: orders become programs of op words, with SEND and RECV in one global order; and back.

All ops and messages of a replay stand in one sequence that is a linear extension of the plan's graph: ops by the
time they end, each message right behind its producer - or, where an order of messages is given, behind the last of the
producers of those that go before it on its pair. A rank's program is the part of that sequence that touches
it. Every edge of contract section 5 then points forward in one sequence, so no cycle can exist, and both ends of
a rank pair see its messages in the same order. A RECV stands where its tensor is sent: posted as early as it can
be of use, and no earlier.
"""

from __future__ import annotations

import numpy as np

from octoplan.simulator.schedule import Replay, Schedule
from octoplan_schemas import InputError, Plan, ProgramIndex, transfer_words
from octoplan_solvers.ops import BACKWARD_WEIGHT, FORWARD, KIND_LETTERS, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem


def lower(replay: Replay) -> tuple[tuple[str, ...], ...]:
    """Return one program of op words per rank."""
    staged, order = replay.schedule.staged, replay.schedule.order
    num_microbatches = staged.num_microbatches
    programs: list[list[str]] = [[] for _ in range(staged.num_ranks)]
    rank_of = staged.stage_rank.tolist()
    sources, destinations = staged.edge_source.tolist(), staged.edge_destination.tolist()
    messages_after = _messages_per_op(replay)
    messages = iter(replay.message_order.tolist())
    for code, num_messages in zip(order.ops[replay.global_order].tolist(), messages_after, strict=True):
        slot, kind = divmod(code, NUM_KINDS)
        stage, microbatch = divmod(slot, num_microbatches)
        programs[rank_of[stage]].append(f"{stage}{KIND_LETTERS[kind]}{microbatch}")
        for _ in range(num_messages):
            message, sent_microbatch = divmod(next(messages), num_microbatches)
            edge, direction = divmod(message, 2)
            source, destination = sources[edge], destinations[edge]
            if direction == 1:
                source, destination = destination, source
            send, recv = transfer_words(source, destination, "FB"[direction], sent_microbatch)
            programs[rank_of[source]].append(send)
            programs[rank_of[destination]].append(recv)
    return tuple(tuple(program) for program in programs)


def _messages_per_op(replay: Replay) -> list[int]:
    """Return how many messages stand behind each op of the global order."""
    if replay.sent_after is not None:
        return [int(count) for count in replay.sent_after]
    staged, lists = replay.schedule.staged, replay.schedule.edge_lists
    codes = replay.schedule.order.ops[replay.global_order]
    stage, kind = codes // NUM_KINDS // staged.num_microbatches, codes % NUM_KINDS
    outgoing, incoming = np.diff(lists.out_begin)[stage], np.diff(lists.in_begin)[stage]
    counts = np.where(kind == FORWARD, outgoing, np.where(kind == BACKWARD_WEIGHT, 0, incoming))
    return [int(count) for count in counts]


def read_schedule(plan: Plan, staged: StagedProblem, index: ProgramIndex | None = None) -> Schedule:
    """Read the programs of a plan that passed the check back into a schedule.

    Raises
    ------
    InputError
        If the programs carry other messages than the stages of this model exchange.
    """
    index = ProgramIndex.of(plan) if index is None else index
    order = Order.from_lists(index.compute_order, staged.num_microbatches)
    return Schedule(staged, order, *_read_messages(staged, index))


def _read_messages(staged: StagedProblem, index: ProgramIndex) -> tuple[IntArray, IntArray]:
    edge_of = {
        (int(source), int(destination)): edge
        for edge, (source, destination) in enumerate(
            zip(staged.edge_source, staged.edge_destination, strict=True)
        )
        if staged.edge_crosses[edge]
    }
    pair_of = staged.edge_pair.tolist()
    by_pair: list[list[int]] = [[] for _ in range(len(staged.pairs))]
    for source, destination, microbatch in index.sends:  # in program order
        direction = 0 if source < destination else 1
        edge = edge_of.get((source, destination) if direction == 0 else (destination, source))
        if edge is None:
            raise InputError(f"stage {source} sends to stage {destination}, but the model has no such edge")
        code = (edge * 2 + direction) * staged.num_microbatches + microbatch
        by_pair[pair_of[edge][direction]].append(code)
    codes = [code for pair in by_pair for code in pair]
    begin = np.cumsum([0, *(len(pair) for pair in by_pair)])
    return np.array(codes, dtype=np.int64), begin.astype(np.int64)
