"""What may be appended to a node of the search."""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import (
    ACTIVATION,
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
    GRADIENT,
    SEND,
    SPLIT,
    Floats,
    Ints,
    Staged,
)
from tests.exhaustive.node import STRIDE, held, input_time, maker


@njit(cache=True)  # type: ignore[untyped-decorator]
def list_children(
    t: Staged, counts: Ints, times: Floats, strict: bool, codes: Ints, starts: Floats
) -> tuple[int, float]:
    """Write what may be appended and its start, most promising first.

    Returns its number, and the earliest start of anything still to come: whatever follows starts with a child or later.
    """
    count = 0
    # The op that ends first of those that may always be moved forward.
    safe_start, safe_end = np.inf, np.inf
    for item in range(4 * len(t.rank)):
        kind, s = item % 4, item // 4
        start = _op_start(t, counts, times, kind, s, strict)
        if start == np.inf:
            continue
        codes[count], starts[count] = kind * STRIDE + s, start
        count += 1
        end = start + t.duration[s, kind]
        if end < safe_end and _is_safe(t, kind, s):
            safe_start, safe_end = start, end
    for d in range(2 * len(t.source)):
        start = _send_start(t, counts, times, d, strict)
        if start == np.inf:
            continue
        codes[count], starts[count] = SEND * STRIDE + d, start
        count += 1
        end = start + t.busy[d // 2, d % 2]
        if end < safe_end:
            safe_start, safe_end = start, end
    earliest = np.inf
    for i in range(count):
        earliest = min(earliest, starts[i])
    if not strict:
        count = _drop_late(codes, starts, count, safe_start, safe_end)
    _sort(codes, starts, count)
    return count, earliest


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _op_start(t: Staged, counts: Ints, times: Floats, kind: int, s: int, strict: bool) -> float:
    """When the next op of a stage and kind may start; infinite if it may not be appended."""
    way = ACTIVATION if kind == FORWARD else GRADIENT
    ready = 0.0
    if kind == BACKWARD_WEIGHT:
        if counts[t.inputs_at + s] == counts[t.weights_at + s]:
            return np.inf
    else:
        if counts[way * len(t.rank) + s] == t.num_microbatches:
            return np.inf
        if (kind == BACKWARD_INPUT and t.mode == FUSED) or (kind == BACKWARD and t.mode == SPLIT):
            return np.inf
        ready = input_time(t, counts, times, s, way)
    room = t.room[t.rank[s]]
    if ready < np.inf and room < np.inf and t.duration[s, kind] > 0:
        need = held(t, counts, t.rank[s]) + t.workspace[s] + (t.activation[s] if kind == FORWARD else 0.0)
        if need > room:
            return np.inf
    return _not_before(max(ready, times[t.rank[s]]), times[t.now_at], strict)


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _send_start(t: Staged, counts: Ints, times: Floats, d: int, strict: bool) -> float:
    """When the next message of a directed edge may leave; infinite if there is none, or no choice of an order."""
    e, way = d // 2, d % 2
    k = counts[t.sent_at + d]
    if not t.crosses[e] or not t.is_shared[t.pair[e, way]]:
        return np.inf
    if counts[way * len(t.rank) + maker(t, e, way)] <= k:
        return np.inf
    made = times[t.made_at + d * t.num_microbatches + k]
    return _not_before(max(made, times[t.pairs_at + t.pair[e, way]]), times[t.now_at], strict)


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _not_before(start: float, now: float, strict: bool) -> float:
    """Ops are appended by their starts; in the strict reading a start is not put off to make it so."""
    if strict and start < now:
        return np.inf
    return max(start, now)


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _is_safe(t: Staged, kind: int, s: int) -> bool:
    """Whether moving an op forward on its rank never takes memory from another op.

    Where B and I are a choice, only B (which ends later) says that a gradient op could be moved, and only if either
    may be.
    """
    unlimited = np.isinf(t.room[t.rank[s]])
    if kind == FORWARD:
        return unlimited or t.activation[s] == 0
    if kind == BACKWARD_INPUT:
        return t.mode == SPLIT and (unlimited or t.stash[s] <= t.freed[s])
    if kind == BACKWARD:
        return t.mode == FUSED or unlimited or t.stash[s] <= t.freed[s]
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _drop_late(codes: Ints, starts: Floats, count: int, safe_start: float, safe_end: float) -> int:
    """Keep the children that start before the safe op could end."""
    kept = 0
    for i in range(count):
        if starts[i] < safe_end or starts[i] <= safe_start:
            codes[kept], starts[kept] = codes[i], starts[i]
            kept += 1
    return kept


@njit(cache=True)  # type: ignore[untyped-decorator]
def _sort(codes: Ints, starts: Floats, count: int) -> None:
    """By start; among equals transfers, then backwards, then forwards of late stages, then weights."""
    for i in range(1, count):
        code, start = codes[i], starts[i]
        j = i
        while j > 0 and (
            starts[j - 1] > start or (starts[j - 1] == start and _turn(codes[j - 1]) > _turn(code))
        ):
            codes[j], starts[j] = codes[j - 1], starts[j - 1]
            j -= 1
        codes[j], starts[j] = code, start


@njit(cache=True)  # type: ignore[untyped-decorator]
def _turn(code: int) -> int:
    kind, s = code // STRIDE, code % STRIDE
    if kind == SEND:
        return 0
    if kind == BACKWARD_INPUT:
        return STRIDE + s
    if kind == BACKWARD:
        return 2 * STRIDE + s
    return 4 * STRIDE - s if kind == FORWARD else 5 * STRIDE
