"""What may be appended to a node of the search."""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
    SEND,
    SPLIT,
    Floats,
    Ints,
    Staged,
)
from tests.exhaustive.node import STRIDE, held


@njit(cache=True)  # type: ignore[untyped-decorator]
def list_children(
    t: Staged, counts: Ints, times: Floats, strict: bool, codes: Ints, starts: Floats, ends: Floats
) -> tuple[int, float]:
    """Write what may be appended, with start and end, most promising first.

    Returns its number, and the earliest start of anything still to come: whatever follows starts with a child or later.
    """
    count = _list_sends(t, counts, times, codes, starts, ends)
    count = _list_ops(t, counts, times, codes, starts, ends, count)
    now, kept = times[t.now_at], 0
    for i in range(count):
        # Appended by their starts; in the strict reading a start is not put off to make it so.
        if starts[i] < now and strict:
            continue
        delay = max(now - starts[i], 0.0)
        codes[kept], starts[kept], ends[kept] = codes[i], starts[i] + delay, ends[i] + delay
        kept += 1
    count = kept
    earliest = np.inf
    for i in range(count):
        earliest = min(earliest, starts[i])
    if not strict:
        count = _drop_late(t, codes, starts, ends, count)
    _sort(codes, starts, count)
    return count, earliest


@njit(cache=True)  # type: ignore[untyped-decorator]
def _list_sends(t: Staged, counts: Ints, times: Floats, codes: Ints, starts: Floats, ends: Floats) -> int:
    """Write the next message of every directed edge that has one, where messages must be put in order."""
    count = 0
    for d in range(len(t.maker)):
        k = counts[t.sent_at + d]
        if t.is_ordered[d] and counts[t.maker[d]] > k:
            made = times[t.made_at + d * t.num_microbatches + k]
            codes[count] = SEND * STRIDE + d
            starts[count] = max(made, times[len(t.room) + t.pair[d]])
            ends[count] = starts[count] + t.busy[d]
            count += 1
    return count


@njit(cache=True)  # type: ignore[untyped-decorator]
def _list_ops(
    t: Staged, counts: Ints, times: Floats, codes: Ints, starts: Floats, ends: Floats, count: int
) -> int:
    """Write the next op of every stage and kind that has its inputs and its memory."""
    num_stages, m = len(t.rank), t.num_microbatches
    for s in range(num_stages):
        free, room = times[t.rank[s]], t.room[t.rank[s]]
        room -= held(t, counts, t.rank[s]) + t.workspace[s] if room < np.inf else 0.0
        weights = counts[t.inputs_at + s] - counts[t.weights_at + s]
        if weights > 0 and (room >= 0 or t.duration[s, BACKWARD_WEIGHT] == 0):
            codes[count], starts[count] = BACKWARD_WEIGHT * STRIDE + s, free
            ends[count] = free + t.duration[s, BACKWARD_WEIGHT]
            count += 1
        for step in (s, num_stages + s):
            k = counts[step]
            if k == m or (step >= num_stages and counts[s] == k):
                continue
            start = free
            for d in range(len(t.user)):
                if t.user[d] != step:
                    continue
                if t.crosses[d]:
                    if counts[t.sent_at + d] <= k:
                        start = np.inf
                    start = max(start, times[t.arrivals_at + d * m + k])
                elif counts[t.maker[d]] <= k:
                    start = np.inf
            if start == np.inf:
                continue
            for kind in (FORWARD, BACKWARD_INPUT, BACKWARD):
                if (
                    (kind == FORWARD) != (step < num_stages)
                    or (kind == BACKWARD_INPUT and t.mode == FUSED)
                    or (kind == BACKWARD and t.mode == SPLIT)
                ):
                    continue
                need = t.activation[s] if kind == FORWARD else 0.0
                if need > room and t.duration[s, kind] > 0:
                    continue
                codes[count], starts[count] = kind * STRIDE + s, start
                ends[count] = start + t.duration[s, kind]
                count += 1
    return count


@njit(cache=True)  # type: ignore[untyped-decorator]
def _drop_late(t: Staged, codes: Ints, starts: Floats, ends: Floats, count: int) -> int:
    """Keep the children that start before any op or transfer could end that may always be moved forward.

    An op may be if it never takes memory from another. Where B and I are a choice, only B (which ends later) says that
    a gradient op could be moved, and only if either may be.
    """
    safe_start, safe_end = np.inf, np.inf
    for i in range(count):
        kind, s = codes[i] // STRIDE, codes[i] % STRIDE
        is_safe = True
        if kind != SEND and kind != BACKWARD_WEIGHT and t.room[t.rank[s]] < np.inf:
            is_safe = t.activation[s] == 0 if kind == FORWARD else t.stash[s] <= t.freed[s] or t.mode == FUSED
        if kind == BACKWARD_INPUT and t.mode != SPLIT:
            is_safe = False
        if is_safe and ends[i] < safe_end:
            safe_start, safe_end = starts[i], ends[i]
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
