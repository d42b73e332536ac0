"""How early everything can be over, whatever is appended to a node.

* Of every step and microbatch: its earliest start, and one remaining path.
* Of every rank, and every set of its remaining steps whose paths from their ends are at least so long: the earliest
  start of any, all of them one after another, then that path. With all W's: without a path.
* Of every directed pair of ranks whose messages compete, likewise.

Strictly read, what has been passed over waits until its rank or pair has been busy once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD_WEIGHT
from octoplan_solvers.order_search.sequences.node import ready_time


@kernel
def lower_bound(
    a: Any, done: Any, times: Any, floor: float, enough: float, heads: Any, unblocked: Any
) -> float:
    """Return seconds.

    Parameters
    ----------
    floor:
        Nothing to come starts before.
    enough:
        A bound that is at least this need not be stronger.
    heads, unblocked:
        Scratch for ``2 S M`` and ``R + P`` figures.
    """
    for index in range(len(unblocked)):
        unblocked[index] = 0.0
    best = max(times[len(times) - 2], _set_heads(a, done, times, floor, heads, unblocked))
    if best < enough:
        best = max(best, _rank_bound(a, done, times, floor, heads))
    if best >= enough:
        return float(best)
    if a.strict and _find_blocked(a, done, times, heads, unblocked):
        for index in range(len(unblocked)):
            if unblocked[index] == np.inf:
                return np.inf  # nothing will keep it busy
        best = max(best, _set_heads(a, done, times, floor, heads, unblocked))
        best = max(best, _rank_bound(a, done, times, floor, heads))
    return float(max(best, _pair_bound(a, done, times, floor, heads)))


@kernel
def _set_heads(a: Any, done: Any, times: Any, floor: float, heads: Any, unblocked: Any) -> float:
    """Write the earliest start of every step that has not run; return the longest path from such a start.

    Forwards of early stages first, then backwards of late ones: what a step waits for has its figure before.
    """
    num_stages, count, num_ranks, best = len(a.stages), a.num_microbatches, len(a.ranks), 0.0
    arrivals, sent = num_ranks + a.num_pairs, 3 * num_stages * count
    steps, edges, in_begin, in_edges = a.steps, a.edges, a.in_begin, a.in_edges
    for turn in range(2 * num_stages):
        step = turn if turn < num_stages else 3 * num_stages - 1 - turn
        rank = a.stages[step % num_stages].rank
        free = max(times[rank], floor)
        in_order = not a.strict or step == 0
        previous = 0.0
        for m in range(count):
            if done[step * count + m]:
                continue
            head = max(free, previous)
            if step >= num_stages and not done[(step - num_stages) * count + m]:
                head = max(head, heads[(step - num_stages) * count + m] + steps[step - num_stages].length)
            elif unblocked[rank] > 0.0 and ready_time(a, done, times, step, m) < 0.0:
                head = max(head, unblocked[rank])
            for index in range(in_begin[step], in_begin[step + 1]):
                edge = in_edges[index]
                maker, crosses = edges[edge].maker, edges[edge].crosses
                if crosses and done[sent + edge * count + m]:
                    head = max(head, times[arrivals + edge * count + m])
                elif not done[maker * count + m]:
                    ready = heads[maker * count + m] + steps[maker].length
                    if crosses:
                        ready = max(ready, times[num_ranks + edges[edge].pair]) + edges[edge].delay
                    head = max(head, ready)
                elif crosses:
                    made, pair = times[arrivals + edge * count + m], num_ranks + edges[edge].pair
                    ready = max(max(made, floor), times[pair])
                    if made < 0.0:
                        ready = max(ready, unblocked[pair])
                    head = max(head, ready + edges[edge].delay)
            heads[step * count + m] = head
            if in_order:
                previous = head + steps[step].length
            best = max(best, head + steps[step].path)
    return best


@kernel
def _find_blocked(a: Any, done: Any, times: Any, heads: Any, unblocked: Any) -> bool:
    """Write when ranks and pairs that passed something over have been busy once more; return False if none did."""
    found = False
    for rank in range(len(a.ranks)):
        if times[rank] < 0.0 and _is_blocked_rank(a, done, times, rank, heads, unblocked):
            found = True
    for pair in range(a.num_pairs):
        if times[len(a.ranks) + pair] < 0.0 and _is_blocked_pair(a, done, times, pair, heads, unblocked):
            found = True
    return found


@kernel
def _is_blocked_rank(a: Any, done: Any, times: Any, rank: int, heads: Any, unblocked: Any) -> bool:
    num_stages, count = len(a.stages), a.num_microbatches
    is_blocked, soonest = False, np.inf
    for step in range(2 * num_stages):
        if a.stages[step % num_stages].rank != rank:
            continue
        for m in range(count):
            if done[step * count + m]:
                weight = (2 * num_stages + step % num_stages) * count + m
                is_blocked = is_blocked or (step >= num_stages and not done[weight])
            elif step >= num_stages and not done[(step - num_stages) * count + m]:
                continue
            elif ready_time(a, done, times, step, m) < 0.0:
                is_blocked = True
            else:
                soonest = min(soonest, heads[step * count + m] + a.steps[step].length)
    if is_blocked:
        unblocked[rank] = soonest
    return is_blocked


@kernel
def _is_blocked_pair(a: Any, done: Any, times: Any, pair: int, heads: Any, unblocked: Any) -> bool:
    count = a.num_microbatches
    arrivals, sent = len(a.ranks) + a.num_pairs, 3 * len(a.stages) * count
    is_blocked, soonest = False, np.inf
    for edge in range(len(a.edges)):
        if not a.edges[edge].is_decision or a.edges[edge].pair != pair:
            continue
        for m in range(count):
            if done[sent + edge * count + m]:
                continue
            if not done[a.edges[edge].maker * count + m]:
                ready = heads[a.edges[edge].maker * count + m] + a.steps[a.edges[edge].maker].length
                soonest = min(soonest, ready + a.edges[edge].busy)
            elif times[arrivals + edge * count + m] < 0.0:
                is_blocked = True
            else:
                soonest = min(soonest, times[arrivals + edge * count + m] + a.edges[edge].busy)
    if is_blocked:
        unblocked[len(a.ranks) + pair] = soonest
    return is_blocked


@kernel
def _rank_bound(a: Any, done: Any, times: Any, floor: float, heads: Any) -> float:
    num_stages, count, best = len(a.stages), a.num_microbatches, 0.0
    for rank in range(len(a.ranks)):
        head, load, work = np.inf, 0.0, 0.0
        soonest = np.inf
        for step in a.steps_by_path:
            stage = step % num_stages
            if a.stages[stage].rank != rank:
                continue
            left = 0
            for m in range(count):
                if not done[step * count + m]:
                    left += 1
                    head = min(head, heads[step * count + m])
                elif step >= num_stages and not done[(2 * num_stages + stage) * count + m]:
                    work += a.duration[stage, BACKWARD_WEIGHT]
                    soonest = max(times[rank], floor)
            if left:
                load += left * a.steps[step].length
                work += left * (a.steps[step].length if step < num_stages else a.stages[stage].whole_backward)
                best = max(best, head + load + a.steps[step].after)
        if work > 0.0:
            best = max(best, min(head, soonest) + work)
    return best


@kernel
def _pair_bound(a: Any, done: Any, times: Any, floor: float, heads: Any) -> float:
    count, best = a.num_microbatches, 0.0
    arrivals, sent = len(a.ranks) + a.num_pairs, 3 * len(a.stages) * count
    for pair in range(a.num_pairs):
        head, load = np.inf, 0.0
        for edge in a.edges_by_path:
            if not a.edges[edge].is_decision or a.edges[edge].pair != pair:
                continue
            left = 0
            for m in range(count):
                if done[sent + edge * count + m]:
                    continue
                left += 1
                ready = times[arrivals + edge * count + m]
                if not done[a.edges[edge].maker * count + m]:
                    ready = heads[a.edges[edge].maker * count + m] + a.steps[a.edges[edge].maker].length
                head = min(head, max(ready, floor, times[len(a.ranks) + pair]))
            if left:
                load += left * a.edges[edge].busy
                best = max(best, head + load + a.edges[edge].after_message)
    return best
