"""The nodes of a few levels of the search, of which none is known to be no better than another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.order_search.sequences.node import PAST, sizes

#: Levels that children may lie in: the present one, the next, and the one after.
LEVELS = 3
_FIRST_CAPACITY = 64
#: Entries of `Frontier.counters`, besides the number of nodes of each level: they come first.
LEVEL, HISTORY, PARENT, CODE, EXPANDED = range(LEVELS, LEVELS + 5)
#: Entries of `Frontier.seconds`: what a sequence must beat, and the least bound of what was dropped unseen.
CUTOFF, DROPPED = 0, 1


class Frontier(NamedTuple):
    """A hash table of nodes for each of `LEVELS` levels; ``C`` nodes fit into each."""

    #: ``(LEVELS, C, ...)`` as in `octoplan_solvers.order_search.sequences.node`.
    done: Any
    times: Any
    #: ``(LEVELS, C)`` lower bound; whether none is known to be as good; next node in the same slot.
    bound: Any
    is_open: Any
    following: Any
    #: ``(LEVELS, C, 2)`` history index of the parent, and code of what was appended.
    origin: Any
    #: ``(LEVELS, slots)`` first node of each slot, -1: none.
    table: Any
    #: ``(H, 2)`` origins of what has been expanded.
    history: Any
    counters: Any
    seconds: Any


@kernel
def new_frontier(a: Any, cutoff: float) -> Any:
    """Return the root alone."""
    num_done, num_times, arrivals, usage = sizes(a)
    f = _allocate(_FIRST_CAPACITY, _FIRST_CAPACITY, num_done, num_times)
    for index in range(num_done):
        f.done[0, 0, index] = 0
    for index in range(num_times):
        f.times[0, 0, index] = PAST if arrivals <= index < usage else 0.0
    f.bound[0, 0] = 0.0
    f.origin[0, 0, 0] = -1
    f.is_open[0, 0] = True
    f.counters[0] = 1
    f.counters[PARENT] = -1
    f.seconds[CUTOFF], f.seconds[DROPPED] = cutoff, np.inf
    return f


@kernel
def _allocate(capacity: int, num_history: int, num_done: int, num_times: int) -> Any:
    """Return an empty frontier; ``capacity`` is a power of two."""
    table = np.empty((LEVELS, 4 * capacity), np.int64)
    for level in range(LEVELS):
        clear(table, level)
    return Frontier(
        np.empty((LEVELS, capacity, num_done), np.int8),
        np.empty((LEVELS, capacity, num_times)),
        np.empty((LEVELS, capacity)),
        np.empty((LEVELS, capacity), np.bool_),
        np.empty((LEVELS, capacity), np.int64),
        np.empty((LEVELS, capacity, 2), np.int64),
        table,
        np.empty((num_history, 2), np.int64),
        np.zeros(LEVELS + 5, np.int64),
        np.empty(2),
    )


@kernel
def clear(table: Any, level: int) -> None:
    """Empty the slots of a level."""
    for slot in range(table.shape[1]):
        table[level, slot] = -1


@kernel
def with_room(f: Any, level: int) -> Any:
    """Return a frontier in which one more node fits into a level, and one more entry into the history."""
    capacity, num_history = f.done.shape[1], len(f.history)
    is_full = f.counters[level] == capacity
    if not is_full and f.counters[HISTORY] < num_history:
        return f
    larger = _allocate(
        2 * capacity if is_full else capacity,
        num_history if is_full else 2 * num_history,
        f.done.shape[2],
        f.times.shape[2],
    )
    for index in range(len(f.counters)):
        larger.counters[index] = f.counters[index]
    for index in range(len(f.seconds)):
        larger.seconds[index] = f.seconds[index]
    for index in range(f.counters[HISTORY]):
        larger.history[index, 0], larger.history[index, 1] = f.history[index, 0], f.history[index, 1]
    for own in range(LEVELS):
        for node in range(f.counters[own]):
            _copy_node(f, larger, own, node)
    return larger


@kernel
def _copy_node(f: Any, larger: Any, level: int, node: int) -> None:
    copy_row(f.done[level, node], larger.done[level, node])
    copy_row(f.times[level, node], larger.times[level, node])
    larger.bound[level, node] = f.bound[level, node]
    larger.is_open[level, node] = f.is_open[level, node]
    larger.origin[level, node, 0] = f.origin[level, node, 0]
    larger.origin[level, node, 1] = f.origin[level, node, 1]
    if f.is_open[level, node]:
        slot = find_slot(larger, level, f.done[level, node])
        larger.following[level, node] = larger.table[level, slot]
        larger.table[level, slot] = node


@kernel
def copy_row(source: Any, target: Any) -> None:
    """Copy element by element: an assignment to a slice compiles its error messages, which takes seconds."""
    for index in range(len(source)):
        target[index] = source[index]


@kernel
def find_slot(f: Any, level: int, done: Any) -> int:
    """Return the slot of the nodes in which the same has run, or a free one."""
    mixed = np.int64(1469598103934665603)
    for index in range(len(done)):
        mixed = (mixed ^ np.int64(done[index])) * np.int64(1099511628211)
    slots = f.table.shape[1]
    slot = (mixed ^ (mixed >> 31)) & (slots - 1)
    while f.table[level, slot] >= 0:
        node = f.table[level, slot]
        is_same = True
        for index in range(len(done)):
            if f.done[level, node, index] != done[index]:
                is_same = False
                break
        if is_same:
            break
        slot = (slot + 1) & (slots - 1)
    return int(slot)


@kernel
def insert(a: Any, f: Any, level: int, done: Any, times: Any, bound: float, code: int) -> None:
    """Store a child of what was expanded last, unless a node is as good; close those that it is as good as."""
    slot = find_slot(f, level, done)
    node, previous = f.table[level, slot], -1
    while node >= 0:
        verdict = (
            _compare_strictly(a, f.times[level, node], times)
            if a.strict
            else _compare(f.times[level, node], times)
        )
        if verdict < 0:
            return
        following = f.following[level, node]
        if verdict == 0:
            previous = node
        else:
            f.is_open[level, node] = False
            if previous < 0:
                f.table[level, slot] = following
            else:
                f.following[level, previous] = following
        node = following
    own = f.counters[level]
    f.counters[level] += 1
    copy_row(done, f.done[level, own])
    copy_row(times, f.times[level, own])
    f.bound[level, own] = bound
    f.is_open[level, own] = True
    f.origin[level, own, 0], f.origin[level, own, 1] = f.counters[HISTORY] - 1, code
    f.following[level, own] = f.table[level, slot]
    f.table[level, slot] = own


@kernel
def _compare(old: Any, new: Any) -> int:
    """Return -1 if no time of the old node is later, 1 if none of the new one is, else 0."""
    old_wins = new_wins = True
    for index in range(len(old) - 1):
        old_wins = old_wins and old[index] <= new[index]
        new_wins = new_wins and old[index] >= new[index]
        if not (old_wins or new_wins):
            return 0
    return -1 if old_wins else 1


@kernel
def _compare_strictly(a: Any, old: Any, new: Any) -> int:
    """Return -1 or 1 if all that they differ in is that the new node is later, or earlier, by one and the same time.

    A time that is earlier than another one by itself may be the worse: what arrives early takes up memory for longer.
    """
    _, _, _, usage = sizes(a)
    delay = np.inf
    for index in range(len(old) - 1):
        is_time = index < usage or index == len(old) - 2
        if not is_time or old[index] < 0.0 or new[index] < 0.0:
            if old[index] != new[index]:
                return 0
        elif delay == np.inf:
            delay = new[index] - old[index]
        elif abs(new[index] - old[index] - delay) > a.tiny:
            return 0
    return -1 if delay >= 0.0 else 1
