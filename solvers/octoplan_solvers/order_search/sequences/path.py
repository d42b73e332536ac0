"""From the history of a search to the sequence that it found, and to an order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octoplan_solvers.ops import BACKWARD_WEIGHT, FORWARD, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.sequences.arrays import Arrays
from octoplan_solvers.order_search.sequences.canonical import rename, simplify
from octoplan_solvers.order_search.sequences.children import list_children
from octoplan_solvers.order_search.sequences.frontier import CODE, PARENT, Frontier
from octoplan_solvers.order_search.sequences.node import PAST, append, sizes
from octoplan_solvers.staged import StagedProblem


def best_path(a: Arrays, f: Frontier) -> list[int]:
    """Return the codes of the best sequence, first one first; none if nothing was found below the cutoff."""
    node = int(f.counters[PARENT])
    if node < 0:
        return []
    path = [int(f.counters[CODE])]
    while f.history[node, 0] >= 0:
        path.append(int(f.history[node, 1]))
        node = int(f.history[node, 0])
    return _with_own_names(a, path[::-1]) if a.strict else path[::-1]


def _with_own_names(a: Arrays, path: list[int]) -> list[int]:
    """Undo the renaming of microbatches along a path, by running it once more."""
    num_done, num_times, arrivals, usage = sizes(a)
    done, times = np.zeros(num_done, np.int8), np.zeros(num_times)
    times[arrivals:usage] = PAST
    codes, starts = np.zeros(num_done, np.int64), np.zeros(num_done)
    names, own = np.zeros(a.num_microbatches, np.int64), np.arange(a.num_microbatches)
    result = []
    for code in path:
        number, _ = list_children(a, done, times, codes, starts)
        start = float(starts[codes[:number].tolist().index(code)])
        result.append(_renamed(code, own))
        append(a, done, times, code, start)
        simplify(a, done, times, start)
        rename(a, done, times, names, done.copy(), times.copy())
        own = own[names]
    return result


def _renamed(code: int, names: IntArray) -> int:
    """Return the code with another microbatch."""
    if code < 0:
        edge, microbatch = divmod(-1 - code, len(names))
        return -1 - (edge * len(names) + int(names[microbatch]))
    slot, kind = divmod(code, NUM_KINDS)
    stage, microbatch = divmod(slot, len(names))
    return (stage * len(names) + int(names[microbatch])) * NUM_KINDS + kind


def orders_of(a: Arrays, staged: StagedProblem, path: list[int]) -> Iterator[Order]:
    """Yield the order of a sequence's ops: messages as they are made, then in the sequence's order, if it has one."""
    ops: list[list[int]] = [[] for _ in range(staged.num_ranks)]
    messages: list[int] = []
    for code in path:
        if code < 0:
            messages.append(-1 - code)
        else:
            ops[staged.stage_rank[code // NUM_KINDS // staged.num_microbatches]].append(code)
            messages += _sent_at_once(a, code)
    codes = np.array([code for own in ops for code in own], dtype=np.int64)
    begin = np.cumsum([0, *(len(own) for own in ops)]).astype(np.int64)
    yield Order(codes, begin, staged.num_microbatches)
    if a.edges["is_decision"].any():
        yield Order(codes, begin, staged.num_microbatches, np.array(messages, dtype=np.int64))


def _sent_at_once(a: Arrays, code: int) -> list[int]:
    """Return the messages of an op that leave when it ends."""
    slot, kind = divmod(code, NUM_KINDS)
    stage, microbatch = divmod(slot, a.num_microbatches)
    if kind == BACKWARD_WEIGHT:
        return []
    step = stage if kind == FORWARD else len(a.stages) + stage
    edges = a.out_edges[a.out_begin[step] : a.out_begin[step + 1]].tolist()
    return [
        edge * a.num_microbatches + microbatch
        for edge in edges
        if a.edges["crosses"][edge] and not a.edges["is_decision"][edge]
    ]
