"""Branch and bound over every order of one fixed partition and placement, from the contract (section 4) alone.

What a node is
--------------
Compute ops and, where two tensors share a directed rank pair, transfers are appended one after another in the order
of their starts. A node holds how often each (stage, kind) has run, when ranks and pairs are free again, and when
tensors that were not used yet arrive. An op starts at the latest of these times and of the start appended last.

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
`strict=False` counts what depends on the orders alone: state, activations, stashes and workspaces during ops that
take time. It leaves out received tensors, and whatever no op of positive length sees: a relaxation. Then

* a node is dropped if an earlier node with the same counts had no later time anywhere (times that lie before the
  earliest start that is still possible count as that): the same continuation runs from there, each op no later;
* a child that starts at t is dropped if some op on its own rank or another, which sits between two ops in no
  continuation that needs it later (it frees memory or memory is no limit there), could start before t and end by t:
  moved there it delays nothing.

`strict=True` counts every byte exactly as the contract does, on exact start times; nodes are dropped only if equal.
Renaming microbatches may then shorten waits, and so lengthen the time that a received tensor waits: the outcome is the
optimum over plans that run microbatches in order.

Bounds of a node: per rank and per set of remaining ops whose remaining path is at least so long, earliest start + work
+ path; likewise per directed pair of ranks, for the transfers left; per stage, earliest start of its next op + its remaining ops + path. Paths are those of one microbatch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD, SEND = range(5)
#: Which ops a stage and microbatch may have: F and B; F, I and W; or a choice between both each time.
FUSED, SPLIT, MIXED = range(3)
#: A node is no better than the incumbent if its bound is not lower by more than this share.
TOLERANCE = 1e-12


class Job(NamedTuple):
    """Layers and devices. ``L`` layers, ``R`` ranks, ``K`` skips."""

    #: ``(R, L, 3)`` seconds of F, I and W, and ``(R,)`` of an op's overhead.
    seconds: Floats
    overhead: Floats
    #: ``(L,)`` bytes.
    state: Floats
    activation: Floats
    retained: Floats
    stash: Floats
    workspace: Floats
    output: Floats
    #: ``(K, 2)`` layers and ``(K,)`` bytes.
    skips: Ints
    skip_bytes: Floats
    #: ``(R, R)``
    latency: Floats
    bandwidth: Floats
    #: ``(R,)`` bytes of the whole peak, and bytes of any rank's peak without its state.
    limit: Floats
    dynamic_limit: float
    num_microbatches: int
    mode: int


class Staged(NamedTuple):
    """One partition and placement. ``S`` stages, ``E`` edges; directions are 0 (activation) and 1 (gradient)."""

    rank: Ints
    #: ``(S, 4)`` seconds of F, I, W, B.
    duration: Floats
    activation: Floats
    freed: Floats
    stash: Floats
    workspace: Floats
    source: Ints
    destination: Ints
    crosses: Ints
    size: Floats
    #: ``(E, 2)`` seconds on the pair, latency, number of the pair.
    busy: Floats
    latency: Floats
    link: Ints
    #: ``(P,)`` 1 if transfers of several edges must be put in order there.
    shared: Ints
    #: ``(R,)`` bytes that a rank has besides its state.
    room: Floats
    #: ``(S,)`` least seconds from the end of F, and of a gradient op, to the end of all that needs it; least seconds
    #: of a gradient op, of its stage's whole backward, and from its start to the end of all that needs it.
    after_forward: Floats
    after_gradient: Floats
    gradient: Floats
    backward_work: Floats
    last_gradient: Floats
    #: Forwards (stage) and gradient ops (``S`` + stage), longest remaining path first; likewise directed edges, and
    #: least seconds from when a message of one frees its pair.
    by_path: Ints
    messages_by_path: Ints
    after_message: Floats
    num_microbatches: int
    mode: int


class Memory(NamedTuple):
    """Nodes met before: an open-addressing table of chains in a pool."""

    keys: Ints
    head: Ints
    stamp: Ints
    following: Ints
    begin: Ints
    values: Floats
    #: ``[entries, values, stamp]`` in use.
    used: Ints


def new_memory() -> Memory:
    """Return an empty table."""
    table, entries, values = 1 << 20, 1 << 19, 1 << 23
    return Memory(
        np.zeros((table, 2), np.int64),
        np.zeros(table, np.int64),
        np.zeros(table, np.int64),
        np.zeros(entries, np.int64),
        np.zeros(entries + 1, np.int64),
        np.zeros(values),
        np.zeros(3, np.int64),
    )


@njit(cache=True)  # type: ignore[untyped-decorator]
def stage(job: Job, ends: Ints, ranks: Ints, num_stages: int) -> Staged:
    """Sum the layers of every stage, find its edges, and measure remaining paths."""
    num_ranks, num_layers = job.seconds.shape[0], job.seconds.shape[1]
    rank = ranks[:num_stages].copy()
    duration = np.zeros((num_stages, 4))
    sizes = np.zeros((num_stages, 4))
    state = np.zeros(num_ranks)
    stage_of = np.zeros(num_layers, np.int64)
    first = 0
    for s in range(num_stages):
        for layer in range(first, ends[s]):
            stage_of[layer] = s
            for part in range(3):
                duration[s, part] += job.seconds[rank[s], layer, part]
            sizes[s, 0] += job.activation[layer]
            sizes[s, 1] += job.activation[layer] - job.retained[layer]
            sizes[s, 2] += job.stash[layer]
            sizes[s, 3] = max(sizes[s, 3], job.workspace[layer])
            state[rank[s]] += job.state[layer]
        duration[s, BACKWARD] = duration[s, BACKWARD_INPUT] + duration[s, BACKWARD_WEIGHT]
        duration[s] += job.overhead[rank[s]]
        first = ends[s]
    room = np.minimum(job.limit - state, job.dynamic_limit)

    capacity = num_stages - 1 + len(job.skips)
    source, destination = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
    size = np.zeros(capacity)
    for s in range(num_stages - 1):
        source[s], destination[s], size[s] = s, s + 1, job.output[ends[s] - 1]
    num_edges = num_stages - 1
    for skip in range(len(job.skips)):
        a, b = stage_of[job.skips[skip, 0]], stage_of[job.skips[skip, 1]]
        if a == b:
            continue
        at = 0
        while at < num_edges and not (source[at] == a and destination[at] == b):
            at += 1
        if at == num_edges:
            source[at], destination[at] = a, b
            num_edges += 1
        size[at] += job.skip_bytes[skip]

    crosses = np.zeros(num_edges, np.int64)
    busy, latency = np.zeros((num_edges, 2)), np.zeros((num_edges, 2))
    link = np.full((num_edges, 2), -1)
    users, takes_time = np.zeros(num_ranks * num_ranks, np.int64), np.zeros(num_ranks * num_ranks, np.int64)
    for e in range(num_edges):
        a, b = rank[source[e]], rank[destination[e]]
        if a == b:
            continue
        crosses[e] = 1
        for way in range(2):
            x, y = (a, b) if way == 0 else (b, a)
            busy[e, way] = size[e] / job.bandwidth[x, y]
            latency[e, way] = job.latency[x, y]
            link[e, way] = x * num_ranks + y
            users[x * num_ranks + y] += 1
            if busy[e, way] > 0:
                takes_time[x * num_ranks + y] = 1
    shared = np.zeros(num_ranks * num_ranks, np.int64)
    for pair in range(num_ranks * num_ranks):
        if users[pair] > 1 and takes_time[pair]:
            shared[pair] = 1

    after_gradient, last_gradient = np.zeros(num_stages), np.zeros(num_stages)
    gradient, work = np.zeros(num_stages), np.zeros(num_stages)
    for s in range(num_stages):
        for e in range(num_edges):
            if destination[e] == s:
                path = busy[e, 1] + latency[e, 1] + last_gradient[source[e]]
                after_gradient[s] = max(after_gradient[s], path)
        whole = duration[s, BACKWARD] + after_gradient[s]
        parts = duration[s, BACKWARD_INPUT] + max(duration[s, BACKWARD_WEIGHT], after_gradient[s])
        split_work = duration[s, BACKWARD_INPUT] + duration[s, BACKWARD_WEIGHT]
        if job.mode == FUSED:
            gradient[s], work[s], last_gradient[s] = duration[s, BACKWARD], duration[s, BACKWARD], whole
        elif job.mode == SPLIT:
            gradient[s], work[s], last_gradient[s] = duration[s, BACKWARD_INPUT], split_work, parts
        else:
            gradient[s] = min(duration[s, BACKWARD_INPUT], duration[s, BACKWARD])
            work[s] = min(split_work, duration[s, BACKWARD])
            last_gradient[s] = min(parts, whole)
    after_forward = np.zeros(num_stages)
    for s in range(num_stages - 1, -1, -1):
        after_forward[s] = last_gradient[s]
        for e in range(num_edges):
            if source[e] == s:
                t = destination[e]
                path = busy[e, 0] + latency[e, 0] + duration[t, FORWARD] + after_forward[t]
                after_forward[s] = max(after_forward[s], path)
    by_path = np.argsort(-np.concatenate((after_forward, after_gradient)))
    after_message = np.zeros(2 * num_edges)
    for e in range(num_edges):
        t = destination[e]
        after_message[2 * e] = latency[e, 0] + duration[t, FORWARD] + after_forward[t]
        after_message[2 * e + 1] = latency[e, 1] + last_gradient[source[e]]
    return Staged(
        rank,
        duration,
        sizes[:, 0].copy(),
        sizes[:, 1].copy(),
        sizes[:, 2].copy(),
        sizes[:, 3].copy(),
        source[:num_edges].copy(),
        destination[:num_edges].copy(),
        crosses,
        size[:num_edges].copy(),
        busy,
        latency,
        link,
        shared,
        room,
        after_forward,
        after_gradient,
        gradient,
        work,
        last_gradient,
        by_path,
        np.argsort(-after_message),
        after_message,
        job.num_microbatches,
        job.mode,
    )


# A node's counts: F, gradient ops, I, W of every stage, then messages sent per directed edge (2 e + direction).
# Its times: rank free, pair free, [directed edge, microbatch] arrival, likewise when unsent ones were made, start of the
# last op, and (strict) what the rank's last op uses while it runs.


@njit(cache=True)  # type: ignore[untyped-decorator]
def _held(t: Staged, counts: Ints, rank: int) -> float:
    """Bytes of activations and stashes on a rank between ops."""
    num_stages = len(t.rank)
    held = 0.0
    for s in range(num_stages):
        if t.rank[s] == rank:
            forwards, gradients = counts[s], counts[num_stages + s]
            inputs, weights = counts[2 * num_stages + s], counts[3 * num_stages + s]
            held += t.activation[s] * (forwards - (gradients - inputs)) - t.freed[s] * inputs
            held += t.stash[s] * (inputs - weights) - (t.activation[s] - t.freed[s]) * weights
    return held


@njit(cache=True)  # type: ignore[untyped-decorator]
def _received(t: Staged, counts: Ints, arrivals: Floats, rank: int, before: float, without: int) -> float:
    """Bytes of tensors that arrived before a time and wait; ``without``: of a consumer (2 stage + way) one less."""
    num_stages = len(t.rank)
    total = 0.0
    for e in range(len(t.source)):
        if not t.crosses[e]:
            continue
        for way in range(2):
            s = t.destination[e] if way == 0 else t.source[e]
            if t.rank[s] != rank:
                continue
            used = counts[s] if way == 0 else counts[num_stages + s]
            if without == 2 * s + way:
                used += 1
            d = 2 * e + way
            for k in range(used, counts[4 * num_stages + d]):
                if arrivals[d * t.num_microbatches + k] < before:
                    total += t.size[e]
    return total


@njit(cache=True)  # type: ignore[untyped-decorator]
def _deliver(
    t: Staged, counts: Ints, times: Floats, e: int, way: int, made: float, now: float, strict: bool
) -> bool:
    """Send the next message of a directed edge; False if it does not fit beside the op that runs there."""
    num_ranks, m = len(t.room), t.num_microbatches
    num_pairs = num_ranks * num_ranks
    num_directed = 2 * len(t.source)
    d, link = 2 * e + way, t.link[e, way]
    sent = 4 * len(t.rank) + d
    start = max(made, times[num_ranks + link], now)
    times[num_ranks + link] = start + t.busy[e, way]
    arrival = start + t.busy[e, way] + t.latency[e, way]
    times[num_ranks + num_pairs + d * m + counts[sent]] = arrival
    counts[sent] += 1
    if strict:
        rank = t.rank[t.destination[e] if way == 0 else t.source[e]]
        usage = num_ranks + num_pairs + 2 * num_directed * m + 1 + rank
        if arrival < times[rank]:
            times[usage] += t.size[e]
            return times[usage] <= t.room[rank]
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _apply(t: Staged, counts: Ints, times: Floats, code: int, start: float, strict: bool) -> bool:
    """Append an op or a transfer to a node; False if memory does not allow it (strict only)."""
    num_stages, num_ranks, m = len(t.rank), len(t.room), t.num_microbatches
    num_pairs = num_ranks * num_ranks
    num_directed = 2 * len(t.source)
    now_at = num_ranks + num_pairs + 2 * num_directed * m
    made_at = num_ranks + num_pairs + num_directed * m
    kind, s = code // 64, code % 64
    times[now_at] = start
    if kind == SEND:
        made = times[made_at + s * m + counts[4 * num_stages + s]]
        return bool(_deliver(t, counts, times, s // 2, s % 2, made, start, strict))
    rank = t.rank[s]
    end = start + t.duration[s, kind]
    if strict:
        arrivals = times[num_ranks + num_pairs : made_at]
        held = _held(t, counts, rank)
        if start > times[rank]:
            waiting = _received(t, counts, arrivals, rank, start, -1)
            if held + waiting > t.room[rank]:
                return False
        without = -1 if kind == BACKWARD_WEIGHT else 2 * s + (0 if kind == FORWARD else 1)
        usage = held + t.workspace[s] + _received(t, counts, arrivals, rank, end, without)
        if kind == FORWARD:
            usage += t.activation[s]
        if end > start and usage > t.room[rank]:
            return False
        times[now_at + 1 + rank] = usage
    times[rank] = end
    if kind == FORWARD:
        nth, way = counts[s], 0
        counts[s] += 1
    elif kind == BACKWARD_WEIGHT:
        counts[3 * num_stages + s] += 1
        return True
    else:
        nth, way = counts[num_stages + s], 1
        counts[num_stages + s] += 1
        if kind == BACKWARD_INPUT:
            counts[2 * num_stages + s] += 1
    fits = True
    for e in range(len(t.source)):
        maker = t.source[e] if way == 0 else t.destination[e]
        if maker == s and t.crosses[e]:
            if t.shared[t.link[e, way]]:
                times[made_at + (2 * e + way) * m + nth] = end
            elif not _deliver(t, counts, times, e, way, end, 0.0, strict):
                fits = False
    return fits


@njit(cache=True)  # type: ignore[untyped-decorator]
def _input_time(t: Staged, counts: Ints, times: Floats, s: int, way: int) -> float:
    """When the next F (way 0) or gradient op (1) of a stage has its inputs; infinite if one was not sent yet."""
    num_stages, num_ranks, m = len(t.rank), len(t.room), t.num_microbatches
    arrival_at = num_ranks + num_ranks * num_ranks
    k = counts[way * num_stages + s]
    if way == 1 and counts[s] <= k:
        return np.inf
    ready = 0.0
    for e in range(len(t.source)):
        if (t.destination[e] if way == 0 else t.source[e]) != s:
            continue
        maker = t.source[e] if way == 0 else t.destination[e]
        d = 2 * e + way
        if not t.crosses[e]:
            if counts[way * num_stages + maker] <= k:
                return np.inf
        elif counts[4 * num_stages + d] <= k:
            return np.inf
        else:
            ready = max(ready, times[arrival_at + d * m + k])
    return ready


@njit(cache=True)  # type: ignore[untyped-decorator]
def _children(
    t: Staged, counts: Ints, times: Floats, strict: bool, codes: Ints, starts: Floats, scratch: Floats
) -> tuple[int, float]:
    """List what may be appended, most promising first; also the earliest start of anything to come."""
    num_stages, num_ranks, m = len(t.rank), len(t.room), t.num_microbatches
    num_pairs, num_directed = num_ranks * num_ranks, 2 * len(t.source)
    made_at = num_ranks + num_pairs + num_directed * m
    now = times[num_ranks + num_pairs + 2 * num_directed * m]
    for r in range(num_ranks):
        scratch[r] = _held(t, counts, r)
    count = 0
    safe_start, safe_end = np.inf, np.inf
    for s in range(num_stages):
        r = t.rank[s]
        unlimited = np.isinf(t.room[r])
        for kind in range(4):
            if kind == FORWARD:
                if counts[s] == m:
                    continue
                ready = _input_time(t, counts, times, s, 0)
            elif kind == BACKWARD_WEIGHT:
                if counts[2 * num_stages + s] == counts[3 * num_stages + s]:
                    continue
                ready = 0.0
            else:
                if counts[num_stages + s] == m:
                    continue
                if t.mode == (FUSED if kind == BACKWARD_INPUT else SPLIT):
                    continue
                ready = _input_time(t, counts, times, s, 1)
            if ready == np.inf:
                continue
            need = scratch[r] + t.workspace[s] + (t.activation[s] if kind == FORWARD else 0.0)
            if t.duration[s, kind] > 0 and need > t.room[r]:
                continue
            start = max(ready, times[r])
            if start < now:
                if strict:
                    continue
                start = now
            codes[count], starts[count] = kind * 64 + s, start
            count += 1
            safe = unlimited or kind == BACKWARD_WEIGHT
            if kind == FORWARD:
                safe = safe or t.activation[s] == 0
            elif kind == BACKWARD_INPUT:
                # Where a choice is left, whatever is moved forward must be what the continuation chose.
                safe = t.mode == SPLIT and (unlimited or t.stash[s] <= t.freed[s])
            elif kind == BACKWARD:
                safe = t.mode == FUSED or unlimited or t.stash[s] <= t.freed[s]
            if safe and start + t.duration[s, kind] < safe_end:
                safe_start, safe_end = start, start + t.duration[s, kind]
    for d in range(num_directed):
        e, way = d // 2, d % 2
        if not t.crosses[e] or not t.shared[t.link[e, way]]:
            continue
        maker = t.source[e] if way == 0 else t.destination[e]
        k = counts[4 * num_stages + d]
        if counts[way * num_stages + maker] <= k:
            continue
        start = max(times[made_at + d * m + k], times[num_ranks + t.link[e, way]])
        if start < now:
            if strict:
                continue
            start = now
        codes[count], starts[count] = SEND * 64 + d, start
        count += 1
        if start + t.busy[e, way] < safe_end:
            safe_start, safe_end = start, start + t.busy[e, way]
    earliest = np.inf
    for i in range(count):
        earliest = min(earliest, starts[i])
    if not strict:
        kept = 0
        for i in range(count):
            if not (safe_end <= starts[i] and safe_start < starts[i]):
                codes[kept], starts[kept] = codes[i], starts[i]
                kept += 1
        count = kept
    for i in range(1, count):
        code, start = codes[i], starts[i]
        j = i
        while j > 0 and (
            starts[j - 1] > start or (starts[j - 1] == start and _taste(codes[j - 1]) > _taste(code))
        ):
            codes[j], starts[j] = codes[j - 1], starts[j - 1]
            j -= 1
        codes[j], starts[j] = code, start
    return count, earliest


@njit(cache=True)  # type: ignore[untyped-decorator]
def _taste(code: int) -> int:
    """Among equal starts: transfers, then backwards, then late forwards, then weights."""
    kind, s = code // 64, code % 64
    if kind == SEND:
        return 0
    if kind == BACKWARD_WEIGHT:
        return 1000
    if kind == FORWARD:
        return 500 - s
    return 100 + s + (64 if kind == BACKWARD else 0)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _bound(t: Staged, counts: Ints, times: Floats, earliest: float, scratch: Floats) -> float:
    """Lower bound of the end of all ops, whatever is appended to the node."""
    num_stages, num_ranks, m = len(t.rank), len(t.room), t.num_microbatches
    num_pairs = num_ranks * num_ranks
    num_directed = 2 * len(t.source)
    made_at = num_ranks + num_pairs + num_directed * m
    forward_at = scratch[:num_stages]
    gradient_at = scratch[num_stages : 2 * num_stages]
    head = scratch[2 * num_stages : 2 * num_stages + num_ranks]
    load = scratch[2 * num_stages + num_ranks : 2 * num_stages + 2 * num_ranks]
    best = 0.0
    for r in range(num_ranks):
        head[r], load[r] = np.inf, 0.0
        best = max(best, times[r])
    for step in range(2 * num_stages):
        way = 0 if step < num_stages else 1
        s = step if way == 0 else 2 * num_stages - 1 - step
        k = counts[way * num_stages + s]
        if k == m:
            continue
        at = max(times[t.rank[s]], earliest)
        if way == 1 and counts[s] <= k:
            at = max(at, forward_at[s] + (k - counts[s] + 1) * t.duration[s, FORWARD])
        for e in range(len(t.source)):
            if (t.destination[e] if way == 0 else t.source[e]) != s:
                continue
            maker = t.source[e] if way == 0 else t.destination[e]
            made, d = counts[way * num_stages + maker], 2 * e + way
            if t.crosses[e] and counts[4 * num_stages + d] > k:
                at = max(at, times[num_ranks + num_pairs + d * m + k])
                continue
            if made > k:
                made_time = times[made_at + d * m + k] if t.crosses[e] else 0.0
            elif way == 0:
                made_time = forward_at[maker] + (k - made + 1) * t.duration[maker, FORWARD]
            else:
                made_time = gradient_at[maker] + (k - made + 1) * t.gradient[maker]
            at = max(at, made_time + t.busy[e, way] + t.latency[e, way])
        if way == 0:
            forward_at[s] = at
            best = max(best, at + (m - k) * t.duration[s, FORWARD] + t.after_forward[s])
        else:
            gradient_at[s] = at
            best = max(best, at + (m - k - 1) * t.gradient[s] + t.last_gradient[s])
        head[t.rank[s]] = min(head[t.rank[s]], at)
    for item in t.by_path:
        way = 0 if item < num_stages else 1
        s = item - way * num_stages
        left = m - counts[item]
        if left > 0:
            r = t.rank[s]
            load[r] += left * (t.duration[s, FORWARD] if way == 0 else t.gradient[s])
            path = t.after_forward[s] if way == 0 else t.after_gradient[s]
            best = max(best, head[r] + load[r] + path)
    for r in range(num_ranks):
        load[r] = 0.0
    for s in range(num_stages):
        r = t.rank[s]
        load[r] += (m - counts[s]) * t.duration[s, FORWARD] + (m - counts[num_stages + s]) * t.backward_work[s]
        weights = counts[2 * num_stages + s] - counts[3 * num_stages + s]
        load[r] += weights * t.duration[s, BACKWARD_WEIGHT]
        if weights > 0:
            head[r] = min(head[r], max(times[r], earliest))
    for r in range(num_ranks):
        if load[r] > 0:
            best = max(best, head[r] + load[r])
    pair_head = scratch[2 * num_stages + 2 * num_ranks : 2 * num_stages + 2 * num_ranks + num_pairs]
    pair_load = scratch[2 * num_stages + 2 * num_ranks + num_pairs :]
    pair_head[:] = np.inf
    pair_load[:num_pairs] = 0.0
    for d in range(num_directed):
        e, way = d // 2, d % 2
        k = counts[4 * num_stages + d]
        if not t.crosses[e] or k == m:
            continue
        maker = t.source[e] if way == 0 else t.destination[e]
        made = counts[way * num_stages + maker]
        at = max(earliest, times[num_ranks + t.link[e, way]])
        if made > k:
            at = max(at, times[made_at + d * m + k])
        elif way == 0:
            at = max(at, forward_at[maker] + t.duration[maker, FORWARD])
        else:
            at = max(at, gradient_at[maker] + t.gradient[maker])
        pair_head[t.link[e, way]] = min(pair_head[t.link[e, way]], at)
    for d in t.messages_by_path:
        e, way = d // 2, d % 2
        left = m - counts[4 * num_stages + d]
        if t.crosses[e] and left > 0:
            pair_load[t.link[e, way]] += left * t.busy[e, way]
            best = max(best, pair_head[t.link[e, way]] + pair_load[t.link[e, way]] + t.after_message[d])
    return best


@njit(cache=True)  # type: ignore[untyped-decorator]
def _live(t: Staged, counts: Ints, times: Floats, floor: float, strict: bool, live: Floats) -> int:
    """Write the times that matter for the rest; which they are follows from the counts."""
    num_stages, num_ranks, m = len(t.rank), len(t.room), t.num_microbatches
    num_pairs, num_directed = num_ranks * num_ranks, 2 * len(t.source)
    arrival_at, made_at = num_ranks + num_pairs, num_ranks + num_pairs + num_directed * m
    now_at = made_at + num_directed * m
    count = 0
    for r in range(num_ranks):
        live[count] = times[r]
        count += 1
    for d in range(num_directed):
        e, way = d // 2, d % 2
        if not t.crosses[e]:
            continue
        user = t.destination[e] if way == 0 else t.source[e]
        sent = counts[4 * num_stages + d]
        if sent < m:
            live[count] = times[num_ranks + t.link[e, way]]
            count += 1
        for k in range(counts[way * num_stages + user], sent):
            live[count] = times[arrival_at + d * m + k]
            count += 1
        if t.shared[t.link[e, way]]:
            maker = t.source[e] if way == 0 else t.destination[e]
            for k in range(sent, counts[way * num_stages + maker]):
                live[count] = times[made_at + d * m + k]
                count += 1
    if strict:
        live[count] = times[now_at]
        for r in range(num_ranks):
            live[count + 1 + r] = times[now_at + 1 + r]
        return count + 1 + num_ranks
    for i in range(count):
        live[i] = max(live[i], floor)
    return count


@njit(cache=True)  # type: ignore[untyped-decorator]
def _is_new(t: Staged, counts: Ints, memory: Memory, live: Floats, size: int, strict: bool) -> bool:
    """Look a node up and store it; False if one met before is equal or (not strict) no worse in any time."""
    num_stages, radix = len(t.rank), t.num_microbatches + 1
    first = second = 0
    for i in range(4 * num_stages):
        first = first * radix + counts[i]
    for i in range(4 * num_stages, len(counts)):
        second = second * radix + counts[i]
    mask = len(memory.head) - 1
    mixed = (first * 0x9E3779B1) ^ (second * 0x85EBCA6B) ^ (first >> 23)
    if strict:  # only equal nodes count: those of the same counts need not be gone through
        bits = live[:size].view(np.int64)
        for i in range(size):
            mixed = (mixed ^ bits[i] ^ (bits[i] >> 29)) * 0x9E3779B1
        mixed ^= mixed >> 31
    slot = mixed & mask
    stamp = memory.used[2]
    while memory.stamp[slot] == stamp:
        same = memory.keys[slot, 0] == first and memory.keys[slot, 1] == second
        if strict and same:
            begin = memory.begin[memory.head[slot]]
            for i in range(size):
                same = same and memory.values[begin + i] == live[i]
        if same:
            break
        slot = (slot + 1) & mask
    is_known = memory.stamp[slot] == stamp
    if strict and is_known:
        return False
    previous, entry = -1, memory.head[slot] if is_known else -1
    while entry >= 0:
        begin = memory.begin[entry]
        stored_wins = new_wins = True
        for i in range(size):
            stored = memory.values[begin + i]
            if stored > live[i]:
                stored_wins = False
            if stored < live[i]:
                new_wins = False
            if not (stored_wins or new_wins):
                break
        if stored_wins:
            return False
        if new_wins:
            if previous < 0:
                memory.head[slot] = memory.following[entry]
            else:
                memory.following[previous] = memory.following[entry]
        else:
            previous = entry
        entry = memory.following[entry]
    entries, values = memory.used[0], memory.used[1]
    if 2 * entries >= len(memory.head) or entries >= len(memory.following) or values + size > len(memory.values):
        return True
    if not is_known:
        memory.stamp[slot] = stamp
        memory.keys[slot, 0], memory.keys[slot, 1] = first, second
        memory.head[slot] = -1
    memory.begin[entries] = values
    memory.values[values : values + size] = live[:size]
    memory.following[entries] = memory.head[slot]
    memory.head[slot] = entries
    memory.used[0] += 1
    memory.used[1] += size
    return True


@njit(cache=True)  # type: ignore[untyped-decorator]
def root_bound(t: Staged) -> float:
    """Lower bound of the makespan of every order."""
    counts, times, scratch = _root(t)
    return float(_bound(t, counts, times, 0.0, scratch))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _root(t: Staged) -> tuple[Ints, Floats, Floats]:
    num_stages, num_ranks, num_directed = len(t.rank), len(t.room), 2 * len(t.source)
    counts = np.zeros(4 * num_stages + num_directed, np.int64)
    times = np.zeros(
        num_ranks + num_ranks * num_ranks + 2 * num_directed * t.num_microbatches + 1 + num_ranks
    )
    return counts, times, np.zeros(2 * (num_stages + num_ranks + num_ranks * num_ranks))


@njit(cache=True)  # type: ignore[untyped-decorator]
def search(
    t: Staged,
    memory: Memory,
    strict: bool,
    upper: float,
    enough: float,
    max_nodes: int,
    dive: bool,
    path: Ints,
) -> tuple[float, int, int]:
    """Find the best order that ends before ``upper``, or any that ends at ``enough``.

    Returns the end found (``upper`` if none), the length of its sequence, written to ``path`` (0 if none), and the
    number of nodes, negative if they ran out before every order was covered. ``dive``: stop at the first end.
    """
    num_stages, num_ranks, m = len(t.rank), len(t.room), t.num_microbatches
    root_counts, root_times, scratch = _root(t)
    depths = 3 * num_stages * m + 2 * len(t.source) * m + 2
    width = 4 * num_stages + 2 * len(t.source)
    counts, times = np.zeros((depths, len(root_counts)), np.int64), np.zeros((depths, len(root_times)))
    codes, starts = np.zeros((depths, width), np.int64), np.zeros((depths, width))
    number, position = np.zeros(depths, np.int64), np.zeros(depths, np.int64)
    live = np.zeros(len(root_times) * 2)
    memory.used[0] = memory.used[1] = 0
    memory.used[2] += 1
    length = nodes = 0
    if root_bound(t) >= upper * (1 - TOLERANCE) or t.room.min() < 0:
        return upper, 0, 0
    number[0], _ = _children(t, counts[0], times[0], strict, codes[0], starts[0], scratch)
    depth = 0
    while depth >= 0:
        if position[depth] >= number[depth]:
            depth -= 1
            continue
        choice = position[depth]
        position[depth] += 1
        below = depth + 1
        nodes += 1
        if nodes > max_nodes:
            return upper, length, -nodes
        counts[below] = counts[depth]
        times[below] = times[depth]
        if not _apply(t, counts[below], times[below], codes[depth, choice], starts[depth, choice], strict):
            continue
        number[below], earliest = _children(
            t, counts[below], times[below], strict, codes[below], starts[below], scratch
        )
        if number[below] == 0:
            done = True
            for s in range(num_stages):
                both = counts[below, 2 * num_stages + s] == counts[below, 3 * num_stages + s]
                done = done and both and counts[below, num_stages + s] == m
            end = times[below, :num_ranks].max()
            if done and end < upper * (1 - TOLERANCE):
                upper, length = end, below
                for i in range(below):
                    path[i] = codes[i, position[i] - 1]
                if dive or upper <= enough * (1 + TOLERANCE):
                    return upper, length, nodes
            continue
        if _bound(t, counts[below], times[below], earliest, scratch) >= upper * (1 - TOLERANCE):
            continue
        if not dive:
            size = _live(t, counts[below], times[below], earliest, strict, live)
            if not _is_new(t, counts[below], memory, live, size, strict):
                continue
        position[below] = 0
        depth = below
    return upper, length, nodes


@njit(cache=True)  # type: ignore[untyped-decorator]
def search_all(
    job: Job,
    ends: Ints,
    ranks: Ints,
    num_stages: Ints,
    memory: Memory,
    strict: bool,
    upper: float,
    enough: float,
    max_nodes: int,
) -> tuple[float, int, Ints, int, bool]:
    """Search every partition and placement (rows), most promising first.

    Returns the best end (``upper`` if none is below), its row (-1 if none), its sequence, the number of nodes, and
    whether all orders were covered: after ``max_nodes`` it gives up. ``enough`` is a known lower bound: who reaches it
    stops.
    """
    num_rows = len(num_stages)
    bounds = np.zeros(num_rows)
    capacity = 3 * job.seconds.shape[1] * job.num_microbatches + 2 * (
        job.seconds.shape[1] + len(job.skips)
    ) * job.num_microbatches
    path, best_path = np.zeros(capacity, np.int64), np.zeros(0, np.int64)
    best_row = -1
    total = 0
    for row in range(num_rows):
        bounds[row] = root_bound(stage(job, ends[row], ranks[row], num_stages[row]))
    order = np.argsort(bounds)
    finished = np.zeros(num_rows, np.bool_)
    # A first plan from every row, then longer and longer searches: a good incumbent makes the long ones short.
    budgets = (500, 2_000, 50_000, max_nodes)
    for turn in range(len(budgets)):
        for row in order:
            if bounds[row] >= upper * (1 - TOLERANCE) or upper <= enough * (1 + TOLERANCE):
                break
            if finished[row]:
                continue
            t = stage(job, ends[row], ranks[row], num_stages[row])
            budget = min(budgets[turn], max(max_nodes - total, 0))
            end, length, nodes = search(t, memory, strict, upper, enough, budget, turn == 0, path)
            total += abs(nodes)
            finished[row] = nodes >= 0 and turn > 0
            if length > 0:
                upper, best_row = end, row
                best_path = path[:length].copy()
    covered = True
    for row in range(num_rows):
        if not finished[row] and bounds[row] < upper * (1 - TOLERANCE) and upper > enough * (1 + TOLERANCE):
            covered = False
    return upper, best_row, best_path, total, covered


def unpack(path: Any) -> list[tuple[int, int]]:
    """Return ``(kind, stage)`` of every op, ``(SEND, directed edge)`` of every ordered transfer."""
    return [(int(code) // 64, int(code) % 64) for code in path]
