"""When everything in an order starts, and how long the rest takes from there: longest paths over flat arrays.

Works on integers (for models) and on seconds. Ops are named by stage, class (0: F, 1: I or B, 2: W) and microbatch,
messages by edge, direction and microbatch. Messages of a directed rank pair go in the order of their producers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem

#: Class of each kind F, I, W, B.
CLASS_OF_KIND = np.array([0, 1, 2, 1], dtype=np.int64)


@dataclass(frozen=True)
class Timing:
    """Start times, and tails: time from the start of an op or a message to the end of all that follows it."""

    #: ``(S, 3, M)``; 0 where there is no W.
    start: Any
    tail: Any
    #: ``(E, 2, M)``.
    message_start: Any
    message_tail: Any
    makespan: Any


def time_order(staged: StagedProblem, order: Order, duration: Any, transfer: Any, latency: Any) -> Timing:
    """Start every op as early as the order allows.

    Parameters
    ----------
    duration, transfer, latency:
        ``(S, 4)`` by kind, ``(E, 2)``, ``(E, 2)`` times, all integers or all floats.

    Raises
    ------
    ValueError
        If the order waits on itself.
    """
    edges_in = edges_by_stage(staged.edge_destination, staged.num_stages)
    edges_out = edges_by_stage(staged.edge_source, staged.num_stages)
    start, tail, message_start, message_tail, makespan, done = timing_kernel(
        order.ops,
        order.rank_begin,
        order.num_microbatches,
        duration,
        staged.edge_source,
        staged.edge_destination,
        staged.edge_crosses,
        staged.edge_pair,
        len(staged.pairs),
        transfer,
        latency,
        *edges_in,
        *edges_out,
    )
    if done < len(order.ops):
        raise ValueError(f"the order waits on itself: only {done} of {len(order.ops)} ops can run")
    return Timing(start, tail, message_start, message_tail, makespan)


def edges_by_stage(ends: IntArray, num_stages: int) -> tuple[IntArray, IntArray]:
    """Return, as CSR, the edges that have each stage at this end."""
    edges = np.argsort(ends, kind="stable").astype(np.int64)
    begin = np.searchsorted(ends[edges], np.arange(num_stages + 1)).astype(np.int64)
    return begin, edges


@kernel
def timing_kernel(
    ops: Any,
    rank_begin: Any,
    num_microbatches: int,
    duration: Any,
    edge_source: Any,
    edge_destination: Any,
    edge_crosses: Any,
    edge_pair: Any,
    num_pairs: int,
    transfer: Any,
    latency: Any,
    in_begin: Any,
    in_edges: Any,
    out_begin: Any,
    out_edges: Any,
) -> Any:
    """Return start, tail, message start, message tail, makespan, and the number of ops that could run."""
    num_stages = duration.shape[0]
    num_edges = len(edge_source)
    zero = duration[0, 0] * 0
    index_of = np.full((num_stages, 3, num_microbatches), -1, np.int64)
    for index in range(len(ops)):
        slot, kind = ops[index] // NUM_KINDS, ops[index] % NUM_KINDS
        kind_class = 1 if kind == BACKWARD else kind
        index_of[slot // num_microbatches, kind_class, slot % num_microbatches] = index
    waits = np.ones(len(ops), np.int64)
    is_last = np.zeros(len(ops), np.bool_)
    for rank in range(len(rank_begin) - 1):
        if rank_begin[rank] < rank_begin[rank + 1]:
            waits[rank_begin[rank]] = 0
            is_last[rank_begin[rank + 1] - 1] = True
    for stage in range(num_stages):
        for microbatch in range(num_microbatches):
            forward, backward = index_of[stage, 0, microbatch], index_of[stage, 1, microbatch]
            waits[forward] += in_begin[stage + 1] - in_begin[stage]
            waits[backward] += 1 + out_begin[stage + 1] - out_begin[stage]
            if index_of[stage, 2, microbatch] >= 0:
                waits[index_of[stage, 2, microbatch]] += 1

    start = np.zeros((num_stages, 3, num_microbatches), duration.dtype)
    message_start = np.zeros((num_edges, 2, num_microbatches), duration.dtype)
    pair_free = np.zeros(num_pairs, duration.dtype)
    sequence = np.empty(len(ops), np.int64)
    done = 0
    stack = np.empty(len(ops), np.int64)
    size = 0
    for index in range(len(ops)):
        if waits[index] == 0:
            stack[size] = index
            size += 1
    makespan = zero
    ready = np.empty(2 + num_edges, np.int64)
    while size > 0:
        size -= 1
        index = stack[size]
        sequence[done] = index
        done += 1
        slot, kind = ops[index] // NUM_KINDS, ops[index] % NUM_KINDS
        kind_class = 1 if kind == BACKWARD else kind
        stage, microbatch = slot // num_microbatches, slot % num_microbatches
        end = start[stage, kind_class, microbatch] + duration[stage, kind]
        makespan = max(makespan, end)
        count = 0
        if not is_last[index]:
            ready[count] = index + 1
            count += 1
        if kind_class < 2:
            own = index_of[stage, kind_class + 1, microbatch]
            if own >= 0:
                ready[count] = own
                count += 1
        for i in range(count):
            slot = ops[ready[i]] // NUM_KINDS
            kind = ops[ready[i]] % NUM_KINDS
            other_class = 1 if kind == BACKWARD else kind
            other, other_microbatch = slot // num_microbatches, slot % num_microbatches
            start[other, other_class, other_microbatch] = max(
                start[other, other_class, other_microbatch], end
            )
        if kind_class < 2:
            first = out_begin[stage] if kind_class == 0 else in_begin[stage]
            last = out_begin[stage + 1] if kind_class == 0 else in_begin[stage + 1]
            for position in range(first, last):
                edge = out_edges[position] if kind_class == 0 else in_edges[position]
                other = edge_destination[edge] if kind_class == 0 else edge_source[edge]
                arrival = end
                if edge_crosses[edge]:
                    pair = edge_pair[edge, kind_class]
                    begins = max(end, pair_free[pair])
                    message_start[edge, kind_class, microbatch] = begins
                    pair_free[pair] = begins + transfer[edge, kind_class]
                    arrival = pair_free[pair] + latency[edge, kind_class]
                start[other, kind_class, microbatch] = max(start[other, kind_class, microbatch], arrival)
                ready[count] = index_of[other, kind_class, microbatch]
                count += 1
        for i in range(count):
            waits[ready[i]] -= 1
            if waits[ready[i]] == 0:
                stack[size] = ready[i]
                size += 1

    tail = np.zeros((num_stages, 3, num_microbatches), duration.dtype)
    message_tail = np.zeros((num_edges, 2, num_microbatches), duration.dtype)
    pair_tail = np.zeros(num_pairs, duration.dtype)
    for position in range(done - 1, -1, -1):
        index = sequence[position]
        slot, kind = ops[index] // NUM_KINDS, ops[index] % NUM_KINDS
        own_kind = kind
        kind_class = 1 if kind == BACKWARD else kind
        stage, microbatch = slot // num_microbatches, slot % num_microbatches
        rest = zero
        if not is_last[index]:
            slot, kind = ops[index + 1] // NUM_KINDS, ops[index + 1] % NUM_KINDS
            other_class = 1 if kind == BACKWARD else kind
            rest = max(rest, tail[slot // num_microbatches, other_class, slot % num_microbatches])
        if kind_class < 2:
            first = out_begin[stage] if kind_class == 0 else in_begin[stage]
            last = out_begin[stage + 1] if kind_class == 0 else in_begin[stage + 1]
            for reverse in range(last - 1, first - 1, -1):
                edge = out_edges[reverse] if kind_class == 0 else in_edges[reverse]
                other = edge_destination[edge] if kind_class == 0 else edge_source[edge]
                path = tail[other, kind_class, microbatch]
                if edge_crosses[edge]:
                    pair = edge_pair[edge, kind_class]
                    path += latency[edge, kind_class]
                    path = transfer[edge, kind_class] + max(path, pair_tail[pair])
                    message_tail[edge, kind_class, microbatch] = path
                    pair_tail[pair] = path
                rest = max(rest, path)
        tail[stage, kind_class, microbatch] = duration[stage, own_kind] + rest
    return start, tail, message_start, message_tail, makespan, done
