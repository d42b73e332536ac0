"""Making nodes with the same future look the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.order_search.sequences.node import PAST


@kernel
def simplify(a: Any, done: Any, times: Any, floor: float) -> None:
    """Write every time as the earliest at which it can make a difference; nothing to come starts before ``floor``.

    Strictly read, what could have started before has been passed over: it must wait until its rank or pair has been
    busy once more, for a plan has no word for a pause. Otherwise it may as well start at ``floor``.
    """
    low = PAST if a.strict else floor
    earliest = floor - a.tiny if a.strict else floor
    num_ranks, ended = len(a.ranks), len(times) - 2
    for rank in range(num_ranks):
        if times[rank] < earliest:
            times[rank] = low
        if not _has_ops_left(a, done, rank):
            times[rank] = PAST
        if times[rank] <= floor:
            times[ended - num_ranks + rank] = 0.0
    if times[ended] < earliest:
        times[ended] = low
    for pair in range(num_ranks, num_ranks + a.num_pairs):
        if times[pair] < earliest:
            times[pair] = low
        soonest = _simplify_messages(a, done, times, pair, low, earliest)
        times[pair] = max(times[pair], soonest) if soonest < np.inf else PAST


@kernel
def _has_ops_left(a: Any, done: Any, rank: int) -> bool:
    num_stages, count = len(a.stages), a.num_microbatches
    for stage in range(num_stages):
        if a.stages[stage].rank == rank:
            for m in range(count):
                if not done[(2 * num_stages + stage) * count + m]:
                    return True
    return False


@kernel
def _simplify_messages(a: Any, done: Any, times: Any, pair: int, low: float, earliest: float) -> float:
    """Return when the next message of a pair can leave at the soonest, if the pair is free; infinite if none is left.

    A tensor that arrives while an op runs is of use when that ends, and its bytes are in `_fits` already.
    """
    num_stages, count, num_ranks = len(a.stages), a.num_microbatches, len(a.ranks)
    arrivals, sent = num_ranks + a.num_pairs, 3 * num_stages * count
    edges, stages = a.edges, a.stages
    soonest = np.inf
    for edge in range(len(edges)):
        if num_ranks + edges[edge].pair != pair:  # -1 for an edge that stays on its rank
            continue
        for m in range(count):
            at = arrivals + edge * count + m
            if not done[edges[edge].maker * count + m]:
                soonest = min(soonest, times[stages[edges[edge].maker % num_stages].rank])
            elif not done[edges[edge].user * count + m]:
                if times[at] < earliest:
                    times[at] = low
                if done[sent + edge * count + m]:
                    times[at] = max(times[at], times[stages[edges[edge].user % num_stages].rank])
                else:
                    times[at] = max(times[at], times[pair])
                    soonest = min(soonest, times[at])
    return float(soonest)


@kernel
def compare(a: Any, done: Any, times: Any, one: int, other: int) -> int:
    """Return 1 if a microbatch comes after another one in the canonical naming, -1 if before, 0 if they are alike."""
    count = a.num_microbatches
    arrivals = len(a.ranks) + a.num_pairs
    for row in range(3 * len(a.stages) + len(a.edges)):
        left, right = done[row * count + one], done[row * count + other]
        if left != right:
            return -1 if left > right else 1
    for edge in range(len(a.edges)):
        first, second = times[arrivals + edge * count + one], times[arrivals + edge * count + other]
        if first != second:
            return -1 if first < second else 1
    return 0


@kernel
def rename(a: Any, done: Any, times: Any, names: Any, old_done: Any, old_times: Any) -> None:
    """Name the microbatches of a node canonically: they are alike, so nothing but names depends on it.

    Writes the old name of each; ``old_done`` and ``old_times`` are scratch.
    """
    count = a.num_microbatches
    is_sorted = True
    for m in range(count):
        at = m
        while at > 0 and compare(a, done, times, names[at - 1], m) > 0:
            names[at] = names[at - 1]
            at -= 1
            is_sorted = False
        names[at] = m
    if is_sorted:
        return
    for index in range(len(done)):
        old_done[index] = done[index]
    for index in range(len(times)):
        old_times[index] = times[index]
    arrivals = len(a.ranks) + a.num_pairs
    for m in range(count):
        for row in range(3 * len(a.stages) + len(a.edges)):
            done[row * count + m] = old_done[row * count + names[m]]
        for edge in range(len(a.edges)):
            times[arrivals + edge * count + m] = old_times[arrivals + edge * count + names[m]]
