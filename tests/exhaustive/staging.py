"""`stage`: one partition and placement of a job as arrays."""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import (
    ACTIVATION,
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
    GRADIENT,
    SPLIT,
    Floats,
    Ints,
    Job,
    Staged,
)


@njit(cache=True)  # type: ignore[untyped-decorator]
def stage(job: Job, ends: Ints, ranks: Ints, num_stages: int) -> Staged:
    """Sum the layers of every stage, find its edges, and measure remaining paths."""
    num_ranks = job.seconds.shape[0]
    rank = ranks[:num_stages].copy()
    duration, sizes, room, stage_of = _costs(job, ends, rank)
    source, destination, size = _edges(job, ends, stage_of, num_stages)
    crosses, busy, latency, pair, is_shared = _transfers(job, rank, source, destination, size)
    after_gradient, last_gradient, gradient, backward = _backward_paths(
        job.mode, duration, source, destination, busy + latency
    )
    after_forward = _forward_paths(duration, source, destination, busy + latency, last_gradient)
    after_message = np.zeros(2 * len(source))
    for e in range(len(source)):
        late = destination[e]
        after_message[2 * e] = latency[e, 0] + duration[late, FORWARD] + after_forward[late]
        after_message[2 * e + 1] = latency[e, 1] + last_gradient[source[e]]
    pairs_at, arrivals_at = num_ranks, num_ranks + num_ranks * num_ranks
    made_at = arrivals_at + 2 * len(source) * job.num_microbatches
    now_at = made_at + 2 * len(source) * job.num_microbatches
    return Staged(
        rank,
        duration,
        sizes[:, 0].copy(),
        sizes[:, 1].copy(),
        sizes[:, 2].copy(),
        sizes[:, 3].copy(),
        source,
        destination,
        crosses,
        size,
        busy,
        latency,
        pair,
        is_shared,
        room,
        after_forward,
        after_gradient,
        gradient,
        backward,
        last_gradient,
        after_message,
        np.argsort(-np.concatenate((after_forward, after_gradient))),
        np.argsort(-after_message),
        job.num_microbatches,
        job.mode,
        2 * num_stages,
        3 * num_stages,
        4 * num_stages,
        pairs_at,
        arrivals_at,
        made_at,
        now_at,
        now_at + 1,
        4 * num_stages + 2 * len(source),
        now_at + 1 + num_ranks,
    )


@njit(cache=True)  # type: ignore[untyped-decorator]
def _costs(job: Job, ends: Ints, rank: Ints) -> tuple[Floats, Floats, Floats, Ints]:
    """Return seconds and bytes of every stage, bytes besides the state of every rank, and the stage of every layer."""
    duration, sizes = np.zeros((len(rank), 4)), np.zeros((len(rank), 4))
    state = np.zeros(len(job.limit))
    stage_of = np.zeros(len(job.state), np.int64)
    first = 0
    for s in range(len(rank)):
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
    return duration, sizes, np.minimum(job.limit - state, job.dynamic_limit), stage_of


@njit(cache=True)  # type: ignore[untyped-decorator]
def _edges(job: Job, ends: Ints, stage_of: Ints, num_stages: int) -> tuple[Ints, Ints, Floats]:
    """Neighbours hand over the last layer's output; skips between the same two stages are one message with it."""
    capacity = num_stages - 1 + len(job.skips)
    source, destination = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
    size = np.zeros(capacity)
    for s in range(num_stages - 1):
        source[s], destination[s], size[s] = s, s + 1, job.output[ends[s] - 1]
    count = num_stages - 1
    for skip in range(len(job.skips)):
        early, late = stage_of[job.skips[skip, 0]], stage_of[job.skips[skip, 1]]
        if early == late:
            continue
        at = 0
        while at < count and not (source[at] == early and destination[at] == late):
            at += 1
        if at == count:
            source[at], destination[at] = early, late
            count += 1
        size[at] += job.skip_bytes[skip]
    return source[:count].copy(), destination[:count].copy(), size[:count].copy()


@njit(cache=True)  # type: ignore[untyped-decorator]
def _transfers(
    job: Job, rank: Ints, source: Ints, destination: Ints, size: Floats
) -> tuple[Ints, Floats, Floats, Ints, Ints]:
    """Return which edges cross ranks, seconds on the pair, latency, number of the pair, and which pairs are shared.

    On a pair of one edge messages leave in the order they are made; so they may where none takes time.
    """
    num_ranks, num_edges = len(job.limit), len(source)
    crosses = np.zeros(num_edges, np.int64)
    busy, latency = np.zeros((num_edges, 2)), np.zeros((num_edges, 2))
    pair = np.full((num_edges, 2), -1)
    users, takes_time = np.zeros(num_ranks * num_ranks, np.int64), np.zeros(num_ranks * num_ranks, np.int64)
    for e in range(num_edges):
        early, late = rank[source[e]], rank[destination[e]]
        if early == late:
            continue
        crosses[e] = 1
        for way in range(2):
            sender, receiver = (early, late) if way == ACTIVATION else (late, early)
            busy[e, way] = size[e] / job.bandwidth[sender, receiver]
            latency[e, way] = job.latency[sender, receiver]
            pair[e, way] = sender * num_ranks + receiver
            users[pair[e, way]] += 1
            if busy[e, way] > 0:
                takes_time[pair[e, way]] = 1
    return crosses, busy, latency, pair, np.where(users > 1, takes_time, 0)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _backward_paths(
    mode: int, duration: Floats, source: Ints, destination: Ints, transfer: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what follows a gradient op, what is left from its start on, its seconds, and a whole backward's."""
    num_stages = len(duration)
    after, last = np.zeros(num_stages), np.zeros(num_stages)
    gradient, work = np.zeros(num_stages), np.zeros(num_stages)
    for s in range(num_stages):
        for e in range(len(source)):
            if destination[e] == s:
                after[s] = max(after[s], transfer[e, GRADIENT] + last[source[e]])
        fused = duration[s, BACKWARD]
        split = duration[s, BACKWARD_INPUT] + duration[s, BACKWARD_WEIGHT]
        fused_path = fused + after[s]
        split_path = duration[s, BACKWARD_INPUT] + max(duration[s, BACKWARD_WEIGHT], after[s])
        if mode == FUSED:
            gradient[s], work[s], last[s] = fused, fused, fused_path
        elif mode == SPLIT:
            gradient[s], work[s], last[s] = duration[s, BACKWARD_INPUT], split, split_path
        else:
            gradient[s] = min(duration[s, BACKWARD_INPUT], fused)
            work[s], last[s] = min(split, fused), min(split_path, fused_path)
    return after, last, gradient, work


@njit(cache=True)  # type: ignore[untyped-decorator]
def _forward_paths(
    duration: Floats, source: Ints, destination: Ints, transfer: Floats, last_gradient: Floats
) -> Floats:
    """Return what follows the F of every stage: the later forwards, and all backwards after them."""
    after = last_gradient.copy()
    for s in range(len(duration) - 1, -1, -1):
        for e in range(len(source)):
            if source[e] == s:
                late = destination[e]
                after[s] = max(after[s], transfer[e, ACTIVATION] + duration[late, FORWARD] + after[late])
    return after
