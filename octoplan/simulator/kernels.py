"""Compiled longest-path kernels over flat arrays (contract, section 4). Linear in ops and messages.

An op is an index into ``ops`` (op codes, rank after rank), a message an index into ``messages`` (message codes,
directed rank pair after pair); ``message code = (edge * 2 + direction) * num_microbatches + microbatch``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD_WEIGHT, FORWARD, NUM_KINDS


@kernel
def locate_ops(ops: Any, num_stages: int, num_microbatches: int) -> Any:
    """Return ``(S, M)`` indices of F, of I or B, and of W (-1 where there is none)."""
    forward = np.full((num_stages, num_microbatches), -1, np.int64)
    backward = np.full((num_stages, num_microbatches), -1, np.int64)
    weight = np.full((num_stages, num_microbatches), -1, np.int64)
    for index in range(len(ops)):
        slot = ops[index] // NUM_KINDS
        kind = ops[index] % NUM_KINDS
        stage = slot // num_microbatches
        microbatch = slot % num_microbatches
        if kind == FORWARD:
            forward[stage, microbatch] = index
        elif kind == BACKWARD_WEIGHT:
            weight[stage, microbatch] = index
        else:
            backward[stage, microbatch] = index
    return forward, backward, weight


@kernel
def stage_edge_lists(ends: Any, crosses: Any, num_stages: int) -> Any:
    """Return, as CSR, the crossing edges at every stage: those whose ``ends[e]`` is the stage."""
    begin = np.zeros(num_stages + 1, np.int64)
    for edge in range(len(ends)):
        if crosses[edge]:
            begin[ends[edge] + 1] += 1
    for stage in range(num_stages):
        begin[stage + 1] += begin[stage]
    fill = begin[:-1].copy()
    edges = np.empty(begin[-1], np.int64)
    for edge in range(len(ends)):
        if crosses[edge]:
            edges[fill[ends[edge]]] = edge
            fill[ends[edge]] += 1
    return begin, edges


@kernel
def count_inputs(ops: Any, rank_begin: Any, num_microbatches: int, in_begin: Any, out_begin: Any) -> Any:
    """Return how many things each op waits for: its predecessor on the rank and its incoming messages."""
    waits = np.ones(len(ops), np.int32)
    for rank in range(len(rank_begin) - 1):
        if rank_begin[rank] < rank_begin[rank + 1]:
            waits[rank_begin[rank]] = 0
    for index in range(len(ops)):
        kind = ops[index] % NUM_KINDS
        stage = ops[index] // NUM_KINDS // num_microbatches
        if kind == FORWARD:
            waits[index] += in_begin[stage + 1] - in_begin[stage]
        elif kind != BACKWARD_WEIGHT:
            waits[index] += out_begin[stage + 1] - out_begin[stage]
    return waits


@kernel
def _sift_up(heap: Any, key: Any, position: int) -> None:
    while position > 0:
        parent = (position - 1) // 2
        a, b = heap[position], heap[parent]
        if key[a] < key[b] or (key[a] == key[b] and a < b):
            heap[position], heap[parent] = b, a
            position = parent
        else:
            return


@kernel
def _sift_down(heap: Any, key: Any, size: int) -> None:
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            return
        if child + 1 < size:
            a, b = heap[child + 1], heap[child]
            if key[a] < key[b] or (key[a] == key[b] and a < b):
                child += 1
        a, b = heap[child], heap[position]
        if key[a] < key[b] or (key[a] == key[b] and a < b):
            heap[child], heap[position] = b, a
            position = child
        else:
            return


@kernel
def replay_kernel(
    ops: Any,
    rank_begin: Any,
    num_microbatches: int,
    duration_s: Any,
    in_begin: Any,
    in_edges: Any,
    out_begin: Any,
    out_edges: Any,
    edge_source: Any,
    edge_destination: Any,
    edge_pair: Any,
    transfer_s: Any,
    latency_s: Any,
    num_pairs: int,
) -> Any:
    """Run fixed compute orders in time order; transfers of a pair go in the order their producers end.

    Returns
    -------
    global_order:
        Op indices by end time (ties by index): a linear extension of the plan's graph. Shorter than ``ops`` if
        the orders wait on themselves.
    message_order:
        Message codes in the order in which they become ready.
    """
    num_ops = len(ops)
    forward, backward, _ = locate_ops(ops, duration_s.shape[0], num_microbatches)
    waits = count_inputs(ops, rank_begin, num_microbatches, in_begin, out_begin)
    start = np.zeros(num_ops)
    end = np.zeros(num_ops)
    pair_free = np.zeros(num_pairs)
    global_order = np.empty(num_ops, np.int64)
    message_order = np.empty(2 * len(in_edges) * num_microbatches, np.int64)
    num_messages = 0
    done = 0
    is_last = np.zeros(num_ops, np.bool_)
    heap = np.empty(len(rank_begin), np.int64)
    size = 0
    for rank in range(len(rank_begin) - 1):
        if rank_begin[rank] < rank_begin[rank + 1]:
            is_last[rank_begin[rank + 1] - 1] = True
            first = rank_begin[rank]
            if waits[first] == 0:
                end[first] = duration_s[ops[first] // NUM_KINDS // num_microbatches, ops[first] % NUM_KINDS]
                heap[size] = first
                size += 1
                _sift_up(heap, end, size - 1)
    while size > 0:
        index = heap[0]
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, end, size)
        global_order[done] = index
        done += 1
        kind = ops[index] % NUM_KINDS
        slot = ops[index] // NUM_KINDS
        stage = slot // num_microbatches
        microbatch = slot % num_microbatches
        if not is_last[index]:
            follower = index + 1
            start[follower] = max(start[follower], end[index])
            waits[follower] -= 1
            if waits[follower] == 0:
                end[follower] = (
                    start[follower]
                    + duration_s[ops[follower] // NUM_KINDS // num_microbatches, ops[follower] % NUM_KINDS]
                )
                heap[size] = follower
                size += 1
                _sift_up(heap, end, size - 1)
        if kind == BACKWARD_WEIGHT:
            continue
        direction = 0 if kind == FORWARD else 1
        first_edge = out_begin[stage] if direction == 0 else in_begin[stage]
        end_edge = out_begin[stage + 1] if direction == 0 else in_begin[stage + 1]
        for position in range(first_edge, end_edge):
            edge = out_edges[position] if direction == 0 else in_edges[position]
            pair = edge_pair[edge, direction]
            begins = max(end[index], pair_free[pair])
            pair_free[pair] = begins + transfer_s[edge, direction]
            arrival = pair_free[pair] + latency_s[edge, direction]
            message_order[num_messages] = (edge * 2 + direction) * num_microbatches + microbatch
            num_messages += 1
            if direction == 0:
                consumer = forward[edge_destination[edge], microbatch]
            else:
                consumer = backward[edge_source[edge], microbatch]
            start[consumer] = max(start[consumer], arrival)
            waits[consumer] -= 1
            if waits[consumer] == 0:
                end[consumer] = (
                    start[consumer]
                    + duration_s[ops[consumer] // NUM_KINDS // num_microbatches, ops[consumer] % NUM_KINDS]
                )
                heap[size] = consumer
                size += 1
                _sift_up(heap, end, size - 1)
    return global_order[:done], message_order[:num_messages]


@kernel
def longest_path_kernel(
    ops: Any,
    rank_begin: Any,
    num_microbatches: int,
    duration_s: Any,
    in_begin: Any,
    in_edges: Any,
    out_begin: Any,
    out_edges: Any,
    edge_source: Any,
    edge_destination: Any,
    messages: Any,
    pair_begin: Any,
    transfer_s: Any,
    latency_s: Any,
) -> Any:
    """Start every op and message as early as the plan's graph allows.

    Returns
    -------
    start, end:
        Seconds of every op.
    message_start, message_arrival:
        Seconds of every message.
    sequence:
        Ops (their index) and messages (``len(ops)`` + their index) in a topological order; shorter than their
        number if the plan waits on itself.
    binding:
        For every op, then every message, the entry of ``sequence`` that it started right after, -1 at time 0.
    """
    num_ops, num_messages = len(ops), len(messages)
    num_stages = duration_s.shape[0]
    forward, backward, _ = locate_ops(ops, num_stages, num_microbatches)
    waits = count_inputs(ops, rank_begin, num_microbatches, in_begin, out_begin)
    message_index = np.full(len(edge_source) * 2 * num_microbatches, -1, np.int64)
    message_waits = np.full(num_messages, 2, np.int8)
    is_last_message = np.zeros(num_messages, np.bool_)
    for pair in range(len(pair_begin) - 1):
        if pair_begin[pair] < pair_begin[pair + 1]:
            message_waits[pair_begin[pair]] = 1
            is_last_message[pair_begin[pair + 1] - 1] = True
    for index in range(num_messages):
        message_index[messages[index]] = index
    is_last = np.zeros(num_ops, np.bool_)
    start = np.zeros(num_ops)
    end = np.zeros(num_ops)
    message_start = np.zeros(num_messages)
    message_arrival = np.zeros(num_messages)
    binding = np.full(num_ops + num_messages, -1, np.int64)
    sequence = np.empty(num_ops + num_messages, np.int64)
    done = 0
    stack = np.empty(num_ops + num_messages, np.int64)
    size = 0
    for rank in range(len(rank_begin) - 1):
        if rank_begin[rank] < rank_begin[rank + 1]:
            is_last[rank_begin[rank + 1] - 1] = True
            if waits[rank_begin[rank]] == 0:
                stack[size] = rank_begin[rank]
                size += 1
    while size > 0:
        size -= 1
        node = stack[size]
        sequence[done] = node
        done += 1
        if node >= num_ops:
            message = node - num_ops
            code = messages[message]
            microbatch = code % num_microbatches
            direction = (code // num_microbatches) % 2
            edge = code // num_microbatches // 2
            free = message_start[message] + transfer_s[edge, direction]
            message_arrival[message] = free + latency_s[edge, direction]
            if not is_last_message[message]:
                follower = message + 1
                if free > message_start[follower]:
                    message_start[follower] = free
                    binding[num_ops + follower] = node
                message_waits[follower] -= 1
                if message_waits[follower] == 0:
                    stack[size] = num_ops + follower
                    size += 1
            if direction == 0:
                consumer = forward[edge_destination[edge], microbatch]
            else:
                consumer = backward[edge_source[edge], microbatch]
            if message_arrival[message] > start[consumer]:
                start[consumer] = message_arrival[message]
                binding[consumer] = node
            waits[consumer] -= 1
            if waits[consumer] == 0:
                stack[size] = consumer
                size += 1
            continue
        kind = ops[node] % NUM_KINDS
        slot = ops[node] // NUM_KINDS
        stage = slot // num_microbatches
        microbatch = slot % num_microbatches
        end[node] = start[node] + duration_s[stage, kind]
        if not is_last[node]:
            follower = node + 1
            if end[node] >= start[follower]:
                start[follower] = end[node]
                binding[follower] = node
            waits[follower] -= 1
            if waits[follower] == 0:
                stack[size] = follower
                size += 1
        if kind == BACKWARD_WEIGHT:
            continue
        direction = 0 if kind == FORWARD else 1
        first_edge = out_begin[stage] if direction == 0 else in_begin[stage]
        end_edge = out_begin[stage + 1] if direction == 0 else in_begin[stage + 1]
        for position in range(first_edge, end_edge):
            edge = out_edges[position] if direction == 0 else in_edges[position]
            message = message_index[(edge * 2 + direction) * num_microbatches + microbatch]
            if end[node] >= message_start[message]:
                message_start[message] = end[node]
                binding[num_ops + message] = node
            message_waits[message] -= 1
            if message_waits[message] == 0:
                stack[size] = num_ops + message
                size += 1
    return start, end, message_start, message_arrival, sequence[:done], binding


@kernel
def latest_end_kernel(
    ops: Any,
    rank_begin: Any,
    num_microbatches: int,
    duration_s: Any,
    in_begin: Any,
    in_edges: Any,
    out_begin: Any,
    out_edges: Any,
    edge_source: Any,
    edge_destination: Any,
    messages: Any,
    pair_begin: Any,
    transfer_s: Any,
    latency_s: Any,
    sequence: Any,
    makespan: float,
) -> Any:
    """Return the latest end of every op, and the latest start of every message, that keep the makespan."""
    num_ops, num_messages = len(ops), len(messages)
    forward, backward, _ = locate_ops(ops, duration_s.shape[0], num_microbatches)
    latest = np.full(num_ops, makespan)
    latest_start = np.full(num_messages, makespan)
    message_index = np.full(len(edge_source) * 2 * num_microbatches, -1, np.int64)
    for index in range(num_messages):
        message_index[messages[index]] = index
    is_last = np.zeros(num_ops, np.bool_)
    for rank in range(len(rank_begin) - 1):
        if rank_begin[rank] < rank_begin[rank + 1]:
            is_last[rank_begin[rank + 1] - 1] = True
    is_last_message = np.zeros(num_messages, np.bool_)
    for pair in range(len(pair_begin) - 1):
        if pair_begin[pair] < pair_begin[pair + 1]:
            is_last_message[pair_begin[pair + 1] - 1] = True
    for position in range(len(sequence) - 1, -1, -1):
        node = sequence[position]
        if node >= num_ops:
            message = node - num_ops
            code = messages[message]
            microbatch = code % num_microbatches
            direction = (code // num_microbatches) % 2
            edge = code // num_microbatches // 2
            if direction == 0:
                consumer = forward[edge_destination[edge], microbatch]
            else:
                consumer = backward[edge_source[edge], microbatch]
            stage = ops[consumer] // NUM_KINDS // num_microbatches
            consumer_start = latest[consumer] - duration_s[stage, ops[consumer] % NUM_KINDS]
            bound = consumer_start - latency_s[edge, direction] - transfer_s[edge, direction]
            if not is_last_message[message]:
                bound = min(bound, latest_start[message + 1] - transfer_s[edge, direction])
            latest_start[message] = bound
            continue
        kind = ops[node] % NUM_KINDS
        slot = ops[node] // NUM_KINDS
        stage = slot // num_microbatches
        microbatch = slot % num_microbatches
        bound = makespan
        if not is_last[node]:
            follower = ops[node + 1]
            bound = (
                latest[node + 1] - duration_s[follower // NUM_KINDS // num_microbatches, follower % NUM_KINDS]
            )
        if kind != BACKWARD_WEIGHT:
            direction = 0 if kind == FORWARD else 1
            first_edge = out_begin[stage] if direction == 0 else in_begin[stage]
            end_edge = out_begin[stage + 1] if direction == 0 else in_begin[stage + 1]
            for index in range(first_edge, end_edge):
                edge = out_edges[index] if direction == 0 else in_edges[index]
                message = message_index[(edge * 2 + direction) * num_microbatches + microbatch]
                bound = min(bound, latest_start[message])
        latest[node] = bound
    return latest, latest_start
