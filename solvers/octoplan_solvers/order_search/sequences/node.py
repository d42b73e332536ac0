"""A node of the sequence search: what has run so far, and when ranks, pairs and messages are ready for more.

``done`` holds flags: ``(3 S, M)`` for F, for I or B, and for W or B of every stage, then ``(D, M)`` for messages sent.
``times`` holds seconds: when each rank and each pair is free (``R + P``), when each message arrives, or was made if it
has not been sent (``D M``); then ``(R,)`` bytes in use while each rank's last op runs; then the latest end so far, and
the start of what came last. A time that no longer matters is `PAST`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS

PAST = -1.0


@kernel
def sizes(a: Any) -> Any:
    """Return the lengths of ``done`` and ``times``, and where arrivals and bytes in use begin in ``times``."""
    num_messages = len(a.edges) * a.num_microbatches
    arrivals = len(a.ranks) + a.num_pairs
    usage = arrivals + num_messages
    return 3 * len(a.stages) * a.num_microbatches + num_messages, usage + len(a.ranks) + 2, arrivals, usage


@kernel
def append(a: Any, done: Any, times: Any, code: int, start: float) -> bool:
    """Append an op (its code) or a message (-1 - message); return False if memory does not allow it."""
    times[len(times) - 1] = start
    if code < 0:
        return bool(_send(a, done, times, -1 - code, start))
    count, num_stages = a.num_microbatches, len(a.stages)
    slot, kind = code // NUM_KINDS, code % NUM_KINDS
    stage, m = slot // count, slot % count
    rank = a.stages[stage].rank
    end = start + a.duration[stage, kind]
    if a.ranks[rank].room < np.inf and not _fits(a, done, times, stage, kind, m, start, end):
        return False
    times[rank] = end
    times[len(times) - 2] = max(times[len(times) - 2], end)
    if kind != FORWARD and kind != BACKWARD_INPUT:
        done[(2 * num_stages + stage) * count + m] = 1
    if kind == BACKWARD_WEIGHT:
        return True
    step = stage if kind == FORWARD else num_stages + stage
    done[step * count + m] = 1
    arrivals = len(a.ranks) + a.num_pairs
    for index in range(a.in_begin[step], a.in_begin[step + 1]):
        times[arrivals + a.in_edges[index] * count + m] = PAST
    fits = True
    for index in range(a.out_begin[step], a.out_begin[step + 1]):
        edge = a.out_edges[index]
        if a.edges[edge].crosses:
            times[arrivals + edge * count + m] = end
            if not a.edges[edge].is_decision:
                begins = max(end, times[len(a.ranks) + a.edges[edge].pair])
                fits = _send(a, done, times, edge * count + m, begins) and fits
    return bool(fits)


@kernel
def _send(a: Any, done: Any, times: Any, message: int, start: float) -> bool:
    """Send a message; return False if it arrives during an op beside which it has no room."""
    edge = message // a.num_microbatches
    arrivals = len(a.ranks) + a.num_pairs
    times[len(a.ranks) + a.edges[edge].pair] = start + a.edges[edge].busy
    arrival = start + a.edges[edge].busy + a.edges[edge].latency
    times[arrivals + message] = arrival
    done[3 * len(a.stages) * a.num_microbatches + message] = 1
    rank = a.stages[a.edges[edge].user % len(a.stages)].rank
    if a.strict and a.ranks[rank].room < np.inf and arrival < times[rank] - a.tiny:
        usage = len(times) - 2 - len(a.ranks) + rank
        times[usage] += a.edges[edge].size
        return bool(times[usage] <= a.ranks[rank].room)
    return True


@kernel
def _fits(a: Any, done: Any, times: Any, stage: int, kind: int, m: int, start: float, end: float) -> bool:
    """Whether the pause before an op and the op itself keep the limit, by all that has been sent so far.

    What has not been sent yet starts later: it does not arrive before this op starts, and if it arrives while this op
    runs, `_send` adds it.
    """
    rank = a.stages[stage].rank
    held = held_bytes(a, done, rank)
    in_use = held + a.stages[stage].workspace
    if kind == FORWARD:
        in_use += a.stages[stage].activation
    if a.strict:
        paused = start > times[rank] + a.tiny
        if paused and held + _waiting_bytes(a, done, times, rank, start, -1, 0) > a.ranks[rank].room:
            return False
        step = -1
        if kind != BACKWARD_WEIGHT:
            step = stage if kind == FORWARD else len(a.stages) + stage
        in_use += _waiting_bytes(a, done, times, rank, end, step, m)
        times[len(times) - 2 - len(a.ranks) + rank] = in_use
    return bool(end == start or in_use <= a.ranks[rank].room)


@kernel
def held_bytes(a: Any, done: Any, rank: int) -> float:
    """Bytes of activations and stashes on a rank between ops."""
    count, num_stages, total = a.num_microbatches, len(a.stages), 0.0
    for stage in range(num_stages):
        if a.stages[stage].rank == rank:
            whole = partly = 0
            for m in range(count):
                is_back = done[(num_stages + stage) * count + m]
                whole += done[stage * count + m] and not is_back
                partly += is_back and not done[(2 * num_stages + stage) * count + m]
            total += a.stages[stage].activation * whole
            total += (a.stages[stage].activation - a.stages[stage].freed + a.stages[stage].stash) * partly
    return total


@kernel
def _waiting_bytes(
    a: Any, done: Any, times: Any, rank: int, before: float, step: int, microbatch: int
) -> float:
    """Bytes of tensors that arrived before an instant and are not used yet, nor by this step."""
    count, num_stages, total = a.num_microbatches, len(a.stages), 0.0
    arrivals, sent = len(a.ranks) + a.num_pairs, 3 * num_stages * count
    edges, stages = a.edges, a.stages
    for edge in range(len(edges)):
        if not edges[edge].crosses or stages[edges[edge].user % num_stages].rank != rank:
            continue
        for m in range(count):
            if not done[sent + edge * count + m] or done[edges[edge].user * count + m]:
                continue
            if edges[edge].user == step and m == microbatch:
                continue
            if times[arrivals + edge * count + m] < before - a.tiny:
                total += edges[edge].size
    return total


@kernel
def ready_time(a: Any, done: Any, times: Any, step: int, m: int) -> float:
    """When a step could start: its rank is free, and its inputs are there. Infinite if some are not sent yet."""
    count, num_stages = a.num_microbatches, len(a.stages)
    arrivals, sent = len(a.ranks) + a.num_pairs, 3 * num_stages * count
    start = times[a.stages[step % num_stages].rank]
    for index in range(a.in_begin[step], a.in_begin[step + 1]):
        edge = a.in_edges[index]
        if not done[(sent + edge * count if a.edges[edge].crosses else a.edges[edge].maker * count) + m]:
            return np.inf
        if a.edges[edge].crosses:
            start = max(start, times[arrivals + edge * count + m])
    return float(start)
