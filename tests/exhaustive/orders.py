"""Branch and bound over every order of one partition and placement, and of all of them.

Compute ops and, where tensors of several edges share a directed pair of ranks, transfers are appended one after another
in the order of their starts. An op starts when its rank is free and its inputs are there, but not before the last one
appended.

*Every plan is met.* A plan's ops start as early as its orders allow; listed by start (equal ones by precedence) they
are such a sequence. A sequence that idles on purpose is no plan, but its orders are one that ends no later.

*Microbatches are interchangeable*, so the k-th execution of a (stage, kind) is called microbatch k; the k-th gradient
op of a stage (B or I, in the order they run) is that of microbatch k, the k-th W belongs to the k-th I, and the k-th
message of an edge carries what its k-th producer made. Proof: rename the ops of any plan so. A consumer that was the
k-th of its edge started when k messages had arrived, hence after the k-th arrival; the k-th message left after k of its
producers had ended, hence after the k-th end. So every start stays possible, with equal durations, and what a rank
holds depends on counts alone: starts of F, ends of B, I and W.

Two readings of memory
----------------------
``strict=False`` counts what depends on the orders alone: state, activations, stashes and workspaces during ops that
take time. It leaves out received tensors, and whatever no op of positive length sees: a relaxation. Then

* a node is dropped if an earlier node with the same counts had no later time anywhere (`seen`): the same continuation
  runs from there, each op no later;
* a child that starts at t is dropped if another op or transfer could start before t and end by t, and moving it there
  takes no memory from any op (`children`): nothing that follows the child starts before t, so nothing is delayed.

``strict=True`` counts every byte exactly as the contract does, on exact start times; nodes are dropped only if equal.
Renaming microbatches may shorten waits, and so lengthen the time that a received tensor waits: the outcome is the
optimum over plans that run microbatches in order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import TOLERANCE, Ints, Job, Staged
from tests.exhaustive.bound import lower_bound
from tests.exhaustive.children import list_children
from tests.exhaustive.node import append
from tests.exhaustive.seen import Seen, forget, is_new, write_live
from tests.exhaustive.staging import stage


@njit(cache=True)  # type: ignore[untyped-decorator]
def search_all(
    job: Job,
    ends: Ints,
    ranks: Ints,
    num_stages: Ints,
    seen: Seen,
    strict: bool,
    enough: float,
    max_nodes: int,
) -> tuple[float, int, Ints, int, bool]:
    """Search every partition and placement (rows), most promising first.

    Returns the best end (infinite if there is none), its row (-1), its sequence, the number of nodes, and whether all
    orders were covered: after ``max_nodes`` it gives up. ``enough`` is a known lower bound: who reaches it stops.
    """
    upper, best_row, best_path, total = np.inf, -1, np.zeros(0, np.int64), 0
    bounds = np.zeros(len(num_stages))
    for row in range(len(num_stages)):
        bounds[row] = root_bound(stage(job, ends[row], ranks[row], num_stages[row]))
    open_rows = np.ones(len(num_stages), np.bool_)
    # A first plan from every row, then longer and longer searches: a good incumbent makes the long ones short.
    budgets = (500, 2_000, 50_000, max_nodes)
    for turn in range(len(budgets)):
        for row in np.argsort(bounds):
            if bounds[row] >= upper * (1 - TOLERANCE) or upper <= enough * (1 + TOLERANCE):
                break
            if not open_rows[row]:
                continue
            t = stage(job, ends[row], ranks[row], num_stages[row])
            budget = min(budgets[turn], max(max_nodes - total, 0))
            end, path, nodes, ended = search(t, seen, strict, upper, enough, budget, turn == 0)
            total += nodes
            open_rows[row] = not ended
            if len(path) > 0:
                upper, best_row, best_path = end, row, path
    covered = upper <= enough * (1 + TOLERANCE) or not (open_rows & (bounds < upper * (1 - TOLERANCE))).any()
    return upper, best_row, best_path, total, covered


@njit(cache=True)  # type: ignore[untyped-decorator]
def search(
    t: Staged, seen: Seen, strict: bool, upper: float, enough: float, max_nodes: int, dive: bool
) -> tuple[float, Ints, int, bool]:
    """Find the best order that ends before ``upper``, or any that ends at ``enough``; ``dive``: or any at all.

    Returns the end found, its sequence (empty if none), the number of nodes, and whether every order was covered.
    """
    path = np.zeros(0, np.int64)
    if root_bound(t) >= upper * (1 - TOLERANCE) or t.room.min() < 0:
        return upper, path, 0, True
    forget(seen)
    depths = t.num_microbatches * (3 * len(t.rank) + len(t.maker)) + 1
    counts, times = np.zeros((depths, t.num_counts), np.int64), np.zeros((depths, t.num_times))
    codes, starts = np.zeros((depths, t.num_counts), np.int64), np.zeros((depths, t.num_counts))
    number, turn = np.zeros(depths, np.int64), np.zeros(depths, np.int64)
    live, scratch = np.zeros(t.num_times + t.num_counts), np.zeros(t.num_counts)
    number[0], _ = list_children(t, counts[0], times[0], strict, codes[0], starts[0], scratch)
    depth = nodes = 0
    while depth >= 0:
        if turn[depth] == number[depth]:
            depth -= 1
            continue
        if nodes == max_nodes:
            return upper, path, nodes, False
        nodes += 1
        code, start = codes[depth, turn[depth]], starts[depth, turn[depth]]
        turn[depth] += 1
        below = depth + 1
        counts[below], times[below] = counts[depth], times[depth]
        if not append(t, counts[below], times[below], code, start, strict):
            continue
        if _is_complete(t, counts[below]):
            end = times[below, : len(t.room)].max()
            if end < upper * (1 - TOLERANCE):
                upper, path = end, np.zeros(below, np.int64)
                for i in range(below):
                    path[i] = codes[i, turn[i] - 1]
                if dive or upper <= enough * (1 + TOLERANCE):
                    return upper, path, nodes, False
            continue
        number[below], earliest = list_children(
            t, counts[below], times[below], strict, codes[below], starts[below], scratch
        )
        if number[below] == 0:
            continue
        if lower_bound(t, counts[below], times[below], earliest, scratch) >= upper * (1 - TOLERANCE):
            continue
        size = 0 if dive else write_live(t, counts[below], times[below], earliest, strict, live)
        if dive or is_new(t, counts[below], seen, live, size, strict):
            turn[below] = 0
            depth = below
    return upper, path, nodes, True


@njit(cache=True)  # type: ignore[untyped-decorator]
def root_bound(t: Staged) -> float:
    """Lower bound of the makespan of every order."""
    counts, times = np.zeros(t.num_counts, np.int64), np.zeros(t.num_times)
    return float(lower_bound(t, counts, times, 0.0, np.zeros(2 * len(t.rank))))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _is_complete(t: Staged, counts: Ints) -> bool:
    for s in range(len(t.rank)):
        if counts[len(t.rank) + s] < t.num_microbatches:
            return False
        if counts[t.weights_at + s] < counts[t.inputs_at + s]:
            return False
    return True
