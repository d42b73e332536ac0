"""Nodes met before, by their counts: which new ones need no look."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tests.exhaustive.arrays import Floats, Ints, Staged


class Seen(NamedTuple):
    """An open-addressing table of chains of nodes in a pool; forgotten by another stamp."""

    keys: Ints
    head: Ints
    stamp: Ints
    following: Ints
    begin: Ints
    values: Floats
    #: ``[nodes, values, stamp]`` in use.
    used: Ints


def new_table() -> Seen:
    """Return an empty table; once full it stores no more, and finds less."""
    table, nodes, values = 1 << 20, 1 << 19, 1 << 23
    return Seen(
        np.zeros((table, 2), np.int64),
        np.zeros(table, np.int64),
        np.zeros(table, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(values),
        np.zeros(3, np.int64),
    )


@njit(cache=True)  # type: ignore[untyped-decorator]
def forget(seen: Seen) -> None:
    """Empty the table."""
    seen.used[0] = seen.used[1] = 0
    seen.used[2] += 1


@njit(cache=True)  # type: ignore[untyped-decorator]
def write_live(t: Staged, counts: Ints, times: Floats, floor: float, strict: bool, live: Floats) -> int:
    """Write the times that matter for the rest and return how many: which they are follows from the counts.

    Nothing starts before ``floor``, so that a time before it counts as that; the strict reading keeps all as they are.
    """
    m, num_ranks = t.num_microbatches, len(t.room)
    live[:num_ranks] = times[:num_ranks]
    count = num_ranks
    for d in range(len(t.maker)):
        if not t.crosses[d]:
            continue
        sent = counts[t.sent_at + d]
        if sent < m:
            live[count] = times[num_ranks + t.pair[d]]
            count += 1
        for k in range(counts[t.user[d]], sent):
            live[count] = times[t.arrivals_at + d * m + k]
            count += 1
        if t.is_ordered[d]:
            for k in range(sent, counts[t.maker[d]]):
                live[count] = times[t.made_at + d * m + k]
                count += 1
    if strict:
        rest = 1 + num_ranks
        live[count : count + rest] = times[t.now_at : t.now_at + rest]
        return count + rest
    for i in range(count):
        live[i] = max(live[i], floor)
    return count


@njit(cache=True)  # type: ignore[untyped-decorator]
def is_new(t: Staged, counts: Ints, seen: Seen, live: Floats, size: int, strict: bool) -> bool:
    """Store a node; False if one met before is equal or, unless strict, later in nothing."""
    radix = t.num_microbatches + 1
    first = second = 0
    for i in range(t.sent_at):
        first = first * radix + counts[i]
    for i in range(t.sent_at, t.num_counts):
        second = second * radix + counts[i]
    slot = _find(seen, first, second, live, size, strict)
    is_known = seen.stamp[slot] == seen.used[2]
    if is_known and (strict or _is_beaten(seen, slot, live, size)):
        return False
    nodes, values = seen.used[0], seen.used[1]
    if nodes == len(seen.following) or values + size > len(seen.values):
        return True
    if not is_known:
        seen.stamp[slot] = seen.used[2]
        seen.keys[slot, 0], seen.keys[slot, 1] = first, second
        seen.head[slot] = -1
    seen.begin[nodes] = values
    seen.values[values : values + size] = live[:size]
    seen.following[nodes] = seen.head[slot]
    seen.head[slot] = nodes
    seen.used[0] += 1
    seen.used[1] += size
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _find(seen: Seen, first: int, second: int, live: Floats, size: int, strict: bool) -> int:
    """Return the slot of these counts (strict: of this very node), or a free one. The table is twice the pool."""
    mixed = (first * 0x9E3779B1) ^ (second * 0x85EBCA6B) ^ (first >> 23)
    if strict:
        bits = live[:size].view(np.int64)
        for i in range(size):
            mixed = (mixed ^ bits[i] ^ (bits[i] >> 29)) * 0x9E3779B1
        mixed ^= mixed >> 31
    mask = len(seen.head) - 1
    slot = mixed & mask
    while seen.stamp[slot] == seen.used[2]:
        same = seen.keys[slot, 0] == first and seen.keys[slot, 1] == second
        if strict and same:
            begin = seen.begin[seen.head[slot]]
            for i in range(size):
                same = same and seen.values[begin + i] == live[i]
        if same:
            break
        slot = (slot + 1) & mask
    return int(slot)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _is_beaten(seen: Seen, slot: int, live: Floats, size: int) -> bool:
    """Whether a node of the same counts is later in nothing; forgets those that the new one beats."""
    previous, node = -1, seen.head[slot]
    while node >= 0:
        begin = seen.begin[node]
        old_wins = new_wins = True
        for i in range(size):
            old_wins = old_wins and seen.values[begin + i] <= live[i]
            new_wins = new_wins and seen.values[begin + i] >= live[i]
            if not (old_wins or new_wins):
                break
        if old_wins:
            return True
        if not new_wins:
            previous = node
        elif previous < 0:
            seen.head[slot] = seen.following[node]
        else:
            seen.following[previous] = seen.following[node]
        node = seen.following[node]
    return False
