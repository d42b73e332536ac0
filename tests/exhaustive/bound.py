"""Lower bound of the end of all ops, whatever is appended to a node of the search.

* Of every stage: earliest start of its next op, all its ops of that kind one after another, then one remaining path.
* Of every rank, and every set of its remaining forwards and gradient ops whose remaining path is at least so long:
  earliest start of any, all of them one after another, then that path. With weights: without a path.
* Of every directed pair of ranks likewise, for the messages still to leave.

Earliest starts follow from what has run, one stage's remaining ops after another, as if ranks ran only these.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import ACTIVATION, BACKWARD_WEIGHT, FORWARD, GRADIENT, Floats, Ints, Staged
from tests.exhaustive.node import maker, user


@njit(cache=True)  # type: ignore[untyped-decorator]
def lower_bound(t: Staged, counts: Ints, times: Floats, earliest: float) -> float:
    """Return the bound in seconds; ``earliest``: nothing to come starts before."""
    starts = np.zeros((2, len(t.rank)))
    best = times[: len(t.room)].max()
    for step in range(2 * len(t.rank)):
        way = ACTIVATION if step < len(t.rank) else GRADIENT
        s = step if way == ACTIVATION else 2 * len(t.rank) - 1 - step
        left = t.num_microbatches - counts[way * len(t.rank) + s]
        if left > 0:
            starts[way, s] = _next_start(t, counts, times, starts, s, way, earliest)
            if way == ACTIVATION:
                path = left * t.duration[s, FORWARD] + t.after_forward[s]
            else:
                path = (left - 1) * t.gradient[s] + t.last_gradient[s]
            best = max(best, starts[way, s] + path)
    best = max(best, _rank_bound(t, counts, times, starts, earliest))
    return float(max(best, _pair_bound(t, counts, times, starts, earliest)))


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _next_start(
    t: Staged, counts: Ints, times: Floats, starts: Floats, s: int, way: int, earliest: float
) -> float:
    """Earliest start of the next F or gradient op of a stage; those it depends on were done before."""
    num_stages, m = len(t.rank), t.num_microbatches
    k = counts[way * num_stages + s]
    start = max(times[t.rank[s]], earliest)
    if way == GRADIENT and counts[s] <= k:
        start = max(start, starts[ACTIVATION, s] + (k - counts[s] + 1) * t.duration[s, FORWARD])
    for e in range(len(t.source)):
        if user(t, e, way) != s:
            continue
        d, origin = 2 * e + way, maker(t, e, way)
        made = counts[way * num_stages + origin]
        if t.crosses[e] and counts[t.sent_at + d] > k:
            start = max(start, times[t.arrivals_at + d * m + k])
            continue
        if made > k:
            ready = times[t.made_at + d * m + k] if t.crosses[e] else 0.0
        else:
            seconds = t.duration[origin, FORWARD] if way == ACTIVATION else t.gradient[origin]
            ready = starts[way, origin] + (k - made + 1) * seconds
        start = max(start, ready + t.busy[e, way] + t.latency[e, way])
    return float(start)


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _rank_bound(t: Staged, counts: Ints, times: Floats, starts: Floats, earliest: float) -> float:
    num_stages, num_ranks = len(t.rank), len(t.room)
    head, load, work = np.full(num_ranks, np.inf), np.zeros(num_ranks), np.zeros(num_ranks)
    for item in t.ops_by_path:
        if counts[item] < t.num_microbatches:
            way, s = item // num_stages, item % num_stages
            head[t.rank[s]] = min(head[t.rank[s]], starts[way, s])
    best = 0.0
    for item in t.ops_by_path:
        way, s = item // num_stages, item % num_stages
        left, r = t.num_microbatches - counts[item], t.rank[s]
        if left > 0:
            load[r] += left * (t.duration[s, FORWARD] if way == ACTIVATION else t.gradient[s])
            work[r] += left * (t.duration[s, FORWARD] if way == ACTIVATION else t.backward[s])
            path = t.after_forward[s] if way == ACTIVATION else t.after_gradient[s]
            best = max(best, head[r] + load[r] + path)
    for s in range(num_stages):
        weights = counts[t.inputs_at + s] - counts[t.weights_at + s]
        if weights > 0:
            r = t.rank[s]
            work[r] += weights * t.duration[s, BACKWARD_WEIGHT]
            head[r] = min(head[r], max(times[r], earliest))
    for r in range(num_ranks):
        if work[r] > 0:
            best = max(best, head[r] + work[r])
    return best


@njit(cache=True, forceinline=True)  # type: ignore[untyped-decorator]
def _pair_bound(t: Staged, counts: Ints, times: Floats, starts: Floats, earliest: float) -> float:
    num_stages, m = len(t.rank), t.num_microbatches
    head, load = np.full(len(t.is_shared), np.inf), np.zeros(len(t.is_shared))
    for d in range(2 * len(t.source)):
        e, way = d // 2, d % 2
        k = counts[t.sent_at + d]
        if not t.crosses[e] or k == m:
            continue
        origin = maker(t, e, way)
        if counts[way * num_stages + origin] > k:
            ready = times[t.made_at + d * m + k]
        else:
            ready = starts[way, origin] + (t.duration[origin, FORWARD] if way == 0 else t.gradient[origin])
        pair = t.pair[e, way]
        head[pair] = min(head[pair], max(ready, earliest, times[t.pairs_at + pair]))
    best = 0.0
    for d in t.messages_by_path:
        e, way = d // 2, d % 2
        left = m - counts[t.sent_at + d]
        if t.crosses[e] and left > 0:
            load[t.pair[e, way]] += left * t.busy[e, way]
            best = max(best, head[t.pair[e, way]] + load[t.pair[e, way]] + t.after_message[d])
    return best
