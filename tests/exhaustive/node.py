"""A node of the search: what an op or a transfer does to its counts and times (`Staged` says what they hold)."""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import (
    ACTIVATION,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    GRADIENT,
    SEND,
    Floats,
    Ints,
    Staged,
)

#: A child is written ``kind * STRIDE + stage``, or ``SEND * STRIDE + directed edge``.
STRIDE = 64


@njit(cache=True)  # type: ignore[untyped-decorator]
def append(t: Staged, counts: Ints, times: Floats, code: int, start: float, strict: bool) -> bool:
    """Append an op or a transfer; False if memory does not allow it, which only the strict reading finds here."""
    kind, s = code // STRIDE, code % STRIDE
    times[t.now_at] = start
    if kind == SEND:
        made = times[t.made_at + s * t.num_microbatches + counts[t.sent_at + s]]
        return bool(_send(t, counts, times, s, max(made, start), strict))
    rank = t.rank[s]
    end = start + t.duration[s, kind]
    if strict and not _fits(t, counts, times, kind, s, start, end):
        return False
    times[rank] = end
    if kind == BACKWARD_WEIGHT:
        counts[t.weights_at + s] += 1
        return True
    way = ACTIVATION if kind == FORWARD else GRADIENT
    nth = counts[way * len(t.rank) + s]
    counts[way * len(t.rank) + s] += 1
    if kind == BACKWARD_INPUT:
        counts[t.inputs_at + s] += 1
    fits = True
    for e in range(len(t.source)):
        if t.crosses[e] and maker(t, e, way) == s:
            if t.is_shared[t.pair[e, way]]:
                times[t.made_at + (2 * e + way) * t.num_microbatches + nth] = end
            elif not _send(t, counts, times, 2 * e + way, end, strict):
                fits = False
    return fits


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def maker(t: Staged, e: int, way: int) -> int:
    """Return the stage at which messages of a directed edge begin."""
    return int(t.source[e] if way == ACTIVATION else t.destination[e])


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def user(t: Staged, e: int, way: int) -> int:
    """Return the stage at which messages of a directed edge end."""
    return int(t.destination[e] if way == ACTIVATION else t.source[e])


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def input_time(t: Staged, counts: Ints, times: Floats, s: int, way: int) -> float:
    """When the next F (ACTIVATION) or gradient op of a stage has its inputs; infinite if one did not leave yet."""
    num_stages = len(t.rank)
    k = counts[way * num_stages + s]
    if way == GRADIENT and counts[s] <= k:
        return np.inf
    ready = 0.0
    for e in range(len(t.source)):
        if user(t, e, way) != s:
            continue
        d = 2 * e + way
        if not t.crosses[e]:
            if counts[way * num_stages + maker(t, e, way)] <= k:
                return np.inf
        elif counts[t.sent_at + d] <= k:
            return np.inf
        else:
            ready = max(ready, times[t.arrivals_at + d * t.num_microbatches + k])
    return ready


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def held(t: Staged, counts: Ints, rank: int) -> float:
    """Bytes of activations and stashes on a rank between ops."""
    num_stages = len(t.rank)
    total = 0.0
    for s in range(num_stages):
        if t.rank[s] == rank:
            forwards, gradients = counts[s], counts[num_stages + s]
            inputs, weights = counts[t.inputs_at + s], counts[t.weights_at + s]
            total += t.activation[s] * (forwards - (gradients - inputs)) - t.freed[s] * inputs
            total += t.stash[s] * (inputs - weights) - (t.activation[s] - t.freed[s]) * weights
    return total


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _send(t: Staged, counts: Ints, times: Floats, d: int, ready: float, strict: bool) -> bool:
    """Send the next message of a directed edge; False if it does not fit beside the op that runs there."""
    e, way = d // 2, d % 2
    free = t.pairs_at + t.pair[e, way]
    times[free] = max(ready, times[free]) + t.busy[e, way]
    arrival = times[free] + t.latency[e, way]
    times[t.arrivals_at + d * t.num_microbatches + counts[t.sent_at + d]] = arrival
    counts[t.sent_at + d] += 1
    if strict:
        rank = t.rank[user(t, e, way)]
        if arrival < times[rank]:
            times[t.usage_at + rank] += t.size[e]
            return bool(times[t.usage_at + rank] <= t.room[rank])
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _fits(t: Staged, counts: Ints, times: Floats, kind: int, s: int, start: float, end: float) -> bool:
    """Whether the pause before an op and the op itself fit by every byte known by now; notes what the op uses.

    Ops are appended by their starts: what arrives before this one starts has left. What arrives while it runs is
    added by `_send` if it leaves later.
    """
    rank = t.rank[s]
    between = held(t, counts, rank)
    if start > times[rank] and between + _received(t, counts, times, rank, start, -1) > t.room[rank]:
        return False
    inputs_of = -1 if kind == BACKWARD_WEIGHT else 2 * s + (ACTIVATION if kind == FORWARD else GRADIENT)
    usage = between + t.workspace[s] + _received(t, counts, times, rank, end, inputs_of)
    if kind == FORWARD:
        usage += t.activation[s]
    times[t.usage_at + rank] = usage
    return bool(end == start or usage <= t.room[rank])


@njit(cache=True)  # type: ignore[untyped-decorator]
def _received(t: Staged, counts: Ints, times: Floats, rank: int, before: float, inputs_of: int) -> float:
    """Bytes of tensors that arrived before a time and still wait, but the next inputs of ``2 stage + way``."""
    total = 0.0
    for d in range(2 * len(t.source)):
        e, way = d // 2, d % 2
        s = user(t, e, way)
        if not t.crosses[e] or t.rank[s] != rank:
            continue
        used = counts[way * len(t.rank) + s] + (1 if inputs_of == 2 * s + way else 0)
        for k in range(used, counts[t.sent_at + d]):
            if times[t.arrivals_at + d * t.num_microbatches + k] < before:
                total += t.size[e]
    return total
