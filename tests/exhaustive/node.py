"""A node of the search: what an op or a transfer does to its counts and times (`Staged` says what they hold)."""

from __future__ import annotations

from numba import njit

from tests.exhaustive.arrays import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, SEND, Floats, Ints, Staged

#: A child is written ``kind * STRIDE + stage``, or ``SEND * STRIDE + directed edge``.
STRIDE = 64


@njit(cache=True)  # type: ignore[untyped-decorator]
def append(t: Staged, counts: Ints, times: Floats, code: int, start: float, strict: bool) -> bool:
    """Append an op or a transfer; False if memory does not allow it, which only the strict reading finds here."""
    kind, s = code // STRIDE, code % STRIDE
    times[t.now_at] = start
    if kind == SEND:
        return bool(_send(t, counts, times, s, start, strict))
    rank = t.rank[s]
    end = start + t.duration[s, kind]
    if strict and not _fits(t, counts, times, kind, s, start, end):
        return False
    times[rank] = end
    if kind == BACKWARD_WEIGHT:
        counts[t.weights_at + s] += 1
        return True
    step = s if kind == FORWARD else len(t.rank) + s
    nth = counts[step]
    counts[step] += 1
    if kind == BACKWARD_INPUT:
        counts[t.inputs_at + s] += 1
    fits = True
    for d in range(len(t.maker)):
        if t.crosses[d] and t.maker[d] == step:
            if t.is_ordered[d]:
                times[t.made_at + d * t.num_microbatches + nth] = end
            elif not _send(t, counts, times, d, end, strict):
                fits = False
    return fits


@njit(cache=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True)  # type: ignore[untyped-decorator]
def _send(t: Staged, counts: Ints, times: Floats, d: int, ready: float, strict: bool) -> bool:
    """Send the next message of a directed edge; False if it does not fit beside the op that runs there."""
    free = len(t.room) + t.pair[d]
    times[free] = max(ready, times[free]) + t.busy[d]
    arrival = times[free] + t.latency[d]
    times[t.arrivals_at + d * t.num_microbatches + counts[t.sent_at + d]] = arrival
    counts[t.sent_at + d] += 1
    rank = t.rank[t.user[d] % len(t.rank)]
    if strict and arrival < times[rank]:
        usage = t.now_at + 1 + rank
        times[usage] += t.size[d]
        return bool(times[usage] <= t.room[rank])
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
    step = -1 if kind == BACKWARD_WEIGHT else s if kind == FORWARD else len(t.rank) + s
    usage = between + t.workspace[s] + _received(t, counts, times, rank, end, step)
    if kind == FORWARD:
        usage += t.activation[s]
    times[t.now_at + 1 + rank] = usage
    return bool(end == start or usage <= t.room[rank])


@njit(cache=True)  # type: ignore[untyped-decorator]
def _received(t: Staged, counts: Ints, times: Floats, rank: int, before: float, step: int) -> float:
    """Bytes of tensors that arrived before a time and still wait, other than the next inputs of a step."""
    total = 0.0
    for d in range(len(t.user)):
        if t.crosses[d] and t.rank[t.user[d] % len(t.rank)] == rank:
            used = counts[t.user[d]] + (1 if t.user[d] == step else 0)
            for k in range(used, counts[t.sent_at + d]):
                if times[t.arrivals_at + d * t.num_microbatches + k] < before:
                    total += t.size[d]
    return total
