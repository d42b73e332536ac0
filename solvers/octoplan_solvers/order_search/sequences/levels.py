"""The search itself: level by level, by the number of ops and messages in a sequence.

Compute ops, and messages where their order is a decision, are appended one after another in the order of their starts.
Each starts when its rank (or pair) is free and its inputs are there. Every plan is met: its ops and messages start as
early as its orders allow; listed by start (equal ones by precedence) they are such a sequence.

Nodes in which the same has run lie on the same level, and only those that may lead to something better are kept. A
level of more than ``width`` nodes is cut to those with the least bounds: then the search is no proof, but the least
bound of what was dropped is a bound.

Two readings
------------
Without ``strict``, what a rank holds follows from the order of its ops: state, activations, stashes, workspaces during
ops that take time. Received tensors are left out. So

* microbatches come in order. They are alike: let the k-th F of a stage be microbatch k's, likewise the k-th backward,
  and let the k-th W belong to the k-th I. The k-th user of an edge started when k messages had arrived, so after the
  k-th one; what is held depends on how many ops have run. At the same times all is right as well;
* a node is closed if in another one nothing is later;
* what starts when something else could be over is left out (`children`).

The optimum is a bound, and where its order keeps the limits by every byte, the optimum.

With ``strict``, every byte at every instant counts, and any microbatch may overtake another. Nothing that could start
is put off by itself: a plan has no word for it. A node is closed if another one differs only by names of microbatches
(`canonical`), or in that everything in it is earlier by the same time: whatever follows the later one can follow the
earlier one, that much sooner, and meet the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD, NUM_KINDS
from octoplan_solvers.order_search.sequences.bound import lower_bound
from octoplan_solvers.order_search.sequences.canonical import rename, simplify
from octoplan_solvers.order_search.sequences.children import list_children
from octoplan_solvers.order_search.sequences.frontier import (
    CODE,
    CUTOFF,
    DROPPED,
    EXPANDED,
    HISTORY,
    LEVEL,
    LEVELS,
    PARENT,
    clear,
    copy_row,
    insert,
    with_room,
)
from octoplan_solvers.order_search.sequences.node import append, sizes


@kernel
def expand_levels(a: Any, f: Any, width: int, most: int, enough: float) -> Any:
    """Expand whole levels until about ``most`` nodes have been, nothing is left, or ``enough`` seconds are reached.

    Returns the frontier, and whether the search is over.
    """
    num_done, num_times, _, _ = sizes(a)
    codes, starts = np.empty((2, num_done), np.int64), np.empty((2, num_done))
    done, times = np.empty((2, num_done), np.int8), np.empty((2, num_times))
    heads, unblocked = np.empty(2 * len(a.stages) * a.num_microbatches), np.empty(len(a.ranks) + a.num_pairs)
    names = np.empty(a.num_microbatches, np.int64)
    until = f.counters[EXPANDED] + most
    while f.counters[EXPANDED] < until:
        level = f.counters[LEVEL] % LEVELS
        if f.counters[0] + f.counters[1] + f.counters[2] == 0 or f.seconds[CUTOFF] <= enough:
            return f, True
        worst, taken = _widest_bound(f, level, width), 0
        for node in range(f.counters[level]):
            if not f.is_open[level, node] or f.bound[level, node] >= f.seconds[CUTOFF]:
                continue
            if f.bound[level, node] > worst or (f.bound[level, node] == worst and taken >= width):
                f.seconds[DROPPED] = min(f.seconds[DROPPED], f.bound[level, node])
                continue
            taken += 1
            f = with_room(f, level)
            f.history[f.counters[HISTORY], 0] = f.origin[level, node, 0]
            f.history[f.counters[HISTORY], 1] = f.origin[level, node, 1]
            f.counters[HISTORY] += 1
            f.counters[EXPANDED] += 1
            count, _ = list_children(a, f.done[level, node], f.times[level, node], codes[0], starts[0])
            for child in range(count):
                code, start = codes[0, child], starts[0, child]
                copy_row(f.done[level, node], done[0])
                copy_row(f.times[level, node], times[0])
                if not append(a, done[0], times[0], code, start):
                    continue
                if _is_complete(a, done[0]):
                    if times[0, -2] < f.seconds[CUTOFF]:
                        f.seconds[CUTOFF] = times[0, -2]
                        f.counters[PARENT], f.counters[CODE] = f.counters[HISTORY] - 1, code
                    continue
                floor = start
                if not a.strict:
                    _, floor = list_children(a, done[0], times[0], codes[1], starts[1])
                    if floor == np.inf:
                        continue
                simplify(a, done[0], times[0], floor)
                if a.strict:
                    rename(a, done[0], times[0], names, done[1], times[1])
                bound = lower_bound(a, done[0], times[0], floor, f.seconds[CUTOFF], heads, unblocked)
                if bound < f.seconds[CUTOFF]:
                    is_whole_backward = code >= 0 and code % NUM_KINDS == BACKWARD
                    where = (level + 1 + is_whole_backward) % LEVELS
                    f = with_room(f, where)
                    insert(a, f, where, done[0], times[0], bound, code)
        f.counters[level] = 0
        clear(f.table, level)
        f.counters[LEVEL] += 1
    return f, False


@kernel
def _widest_bound(f: Any, level: int, width: int) -> float:
    """Return the bound from which on nodes of a level are dropped, so that about ``width`` are left."""
    bounds = np.empty(f.counters[level])
    count = 0
    for node in range(f.counters[level]):
        if f.is_open[level, node] and f.bound[level, node] < f.seconds[CUTOFF]:
            bounds[count] = f.bound[level, node]
            count += 1
    if count <= width:
        return np.inf
    low, high = 0, count - 1
    while low < high:  # quickselect
        pivot, left, right = bounds[(low + high) // 2], low, high
        while left <= right:
            while bounds[left] < pivot:
                left += 1
            while bounds[right] > pivot:
                right -= 1
            if left <= right:
                bounds[left], bounds[right] = bounds[right], bounds[left]
                left += 1
                right -= 1
        if width <= right:
            high = right
        elif width >= left:
            low = left
        else:
            break
    return float(bounds[width])


@kernel
def _is_complete(a: Any, done: Any) -> bool:
    number = len(a.stages) * a.num_microbatches
    count = 0
    for flag in range(2 * number, 3 * number):
        count += done[flag]
    return bool(count == number)
