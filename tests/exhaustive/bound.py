"""Lower bound of the end of all ops, whatever is appended to a node of the search.

* Of every step: earliest start of the next, all that are left one after another, then one remaining path.
* Of every rank, and every set of its remaining steps whose remaining path is at least so long: earliest start of any,
  all of them one after another, then that path. With weights: without a path.
* Of every directed pair of ranks likewise, for the messages still to leave.

Earliest starts follow from what has run, as if the steps still missing for a microbatch ran without a pause.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import BACKWARD_WEIGHT, Floats, Ints, Staged


@njit(cache=True)  # type: ignore[untyped-decorator]
def lower_bound(t: Staged, counts: Ints, times: Floats, earliest: float, starts: Floats) -> float:
    """Return the bound in seconds; nothing to come starts before ``earliest``. ``starts``: room for ``2 S`` figures."""
    num_stages, m = len(t.rank), t.num_microbatches
    best = times[: len(t.room)].max()
    for turn in range(2 * num_stages):
        # Forwards of early stages first, then gradient ops of late ones: what a step waits for is done before.
        step = turn if turn < num_stages else 3 * num_stages - 1 - turn
        k = counts[step]
        if k == m:
            continue
        start = max(times[t.rank[step % num_stages]], earliest)
        if step >= num_stages and counts[step - num_stages] <= k:
            forward = step - num_stages
            start = max(start, starts[forward] + (k - counts[forward] + 1) * t.seconds[forward])
        for d in range(len(t.user)):
            if t.user[d] == step:
                made = counts[t.maker[d]]
                if t.crosses[d] and counts[t.sent_at + d] > k:
                    ready = times[t.arrivals_at + d * m + k]
                elif made > k:
                    ready = times[t.made_at + d * m + k] + t.busy[d] + t.latency[d] if t.crosses[d] else 0.0
                else:
                    ready = starts[t.maker[d]] + (k - made + 1) * t.seconds[t.maker[d]]
                    ready += t.busy[d] + t.latency[d]
                start = max(start, ready)
        starts[step] = start
        best = max(best, start + (m - k - 1) * t.seconds[step] + t.last[step])
    best = max(best, _rank_bound(t, counts, times, starts, earliest))
    return float(max(best, _pair_bound(t, counts, times, starts, earliest)))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _rank_bound(t: Staged, counts: Ints, times: Floats, starts: Floats, earliest: float) -> float:
    num_stages = len(t.rank)
    best = 0.0
    for r in range(len(t.room)):
        head, load, work = np.inf, 0.0, 0.0
        for step in range(2 * num_stages):
            if t.rank[step % num_stages] == r and counts[step] < t.num_microbatches:
                head = min(head, starts[step])
        for step in t.steps_by_path:
            left = t.num_microbatches - counts[step]
            if t.rank[step % num_stages] == r and left > 0:
                load += left * t.seconds[step]
                work += left * (t.seconds[step] if step < num_stages else t.backward[step - num_stages])
                best = max(best, head + load + t.after[step])
        for s in range(num_stages):
            weights = counts[t.inputs_at + s] - counts[t.weights_at + s]
            if t.rank[s] == r and weights > 0:
                work += weights * t.duration[s, BACKWARD_WEIGHT]
                head = min(head, max(times[r], earliest))
        if work > 0:
            best = max(best, head + work)
    return best


@njit(cache=True)  # type: ignore[untyped-decorator]
def _pair_bound(t: Staged, counts: Ints, times: Floats, starts: Floats, earliest: float) -> float:
    best = 0.0
    for first in range(len(t.maker)):
        pair = t.pair[first]
        if not t.is_ordered[first] or counts[t.sent_at + first] == t.num_microbatches:
            continue
        head, load = np.inf, 0.0
        for d in range(len(t.maker)):
            k = counts[t.sent_at + d]
            if t.pair[d] == pair and k < t.num_microbatches:
                if counts[t.maker[d]] > k:
                    ready = times[t.made_at + d * t.num_microbatches + k]
                else:
                    ready = starts[t.maker[d]] + t.seconds[t.maker[d]]
                head = min(head, max(ready, earliest, times[len(t.room) + pair]))
        for d in t.messages_by_path:
            left = t.num_microbatches - counts[t.sent_at + d]
            if t.pair[d] == pair and left > 0:
                load += left * t.busy[d]
                best = max(best, head + load + t.after_message[d])
    return best
