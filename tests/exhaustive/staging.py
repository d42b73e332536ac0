"""`stage`: one partition and placement of a job as arrays."""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.exhaustive.arrays import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
    SPLIT,
    Floats,
    Ints,
    Job,
    Staged,
)


@njit(cache=True)  # type: ignore[untyped-decorator]
def stage(job: Job, ends: Ints, ranks: Ints, num_stages: int) -> Staged:
    """Sum the layers of every stage, find its edges, and measure remaining paths."""
    num_ranks, rank = len(job.limit), ranks[:num_stages].copy()
    duration, sizes, room, stage_of = _costs(job, ends, rank)
    maker, user, size = _edges(job, ends, stage_of, num_stages)
    crosses, busy, latency, pair, is_ordered = _transfers(
        job, rank, maker % num_stages, user % num_stages, size
    )
    seconds, after, last, backward = _paths(job.mode, duration, maker, user, busy + latency)
    after_message = latency + last[user]
    arrivals_at = num_ranks + num_ranks * num_ranks
    made_at = arrivals_at + len(maker) * job.num_microbatches
    now_at = made_at + len(maker) * job.num_microbatches
    return Staged(
        rank,
        duration,
        sizes[:, 0].copy(),
        sizes[:, 1].copy(),
        sizes[:, 2].copy(),
        sizes[:, 3].copy(),
        room,
        seconds,
        after,
        last,
        backward,
        maker,
        user,
        crosses,
        size,
        busy,
        latency,
        pair,
        is_ordered,
        after_message,
        np.argsort(-after),
        np.argsort(-after_message),
        job.num_microbatches,
        job.mode,
        2 * num_stages,
        3 * num_stages,
        4 * num_stages,
        arrivals_at,
        made_at,
        now_at,
        4 * num_stages + len(maker),
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
    early, late, size = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(capacity)
    for s in range(num_stages - 1):
        early[s], late[s], size[s] = s, s + 1, job.output[ends[s] - 1]
    count = num_stages - 1
    for skip in range(len(job.skips)):
        a, b = stage_of[job.skips[skip, 0]], stage_of[job.skips[skip, 1]]
        if a == b:
            continue
        at = 0
        while at < count and not (early[at] == a and late[at] == b):
            at += 1
        if at == count:
            early[at], late[at] = a, b
            count += 1
        size[at] += job.skip_bytes[skip]
    maker, user, both = np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64), np.zeros(2 * count)
    maker[::2], user[::2], both[::2] = early[:count], late[:count], size[:count]
    maker[1::2], user[1::2], both[1::2] = num_stages + late[:count], num_stages + early[:count], size[:count]
    return maker, user, both


@njit(cache=True)  # type: ignore[untyped-decorator]
def _transfers(
    job: Job, rank: Ints, sender: Ints, receiver: Ints, size: Floats
) -> tuple[Ints, Floats, Floats, Ints, Ints]:
    """Return per directed edge whether it crosses ranks, seconds on its pair, latency, pair, and if order matters.

    Where a pair has one edge messages leave in the order they are made; so they may where none takes time.
    """
    num_ranks, num_edges = len(job.limit), len(size)
    crosses, pair = np.zeros(num_edges, np.int64), np.full(num_edges, -1)
    busy, latency = np.zeros(num_edges), np.zeros(num_edges)
    users, seconds = np.zeros(num_ranks * num_ranks), np.zeros(num_ranks * num_ranks)
    for d in range(num_edges):
        a, b = rank[sender[d]], rank[receiver[d]]
        if a != b:
            crosses[d], pair[d] = 1, a * num_ranks + b
            busy[d], latency[d] = size[d] / job.bandwidth[a, b], job.latency[a, b]
            users[pair[d]] += 1
            seconds[pair[d]] += busy[d]
    is_ordered = np.zeros(num_edges, np.int64)
    for d in range(num_edges):
        if crosses[d] and users[pair[d]] > 1 and seconds[pair[d]] > 0:
            is_ordered[d] = 1
    return crosses, busy, latency, pair, is_ordered


@njit(cache=True)  # type: ignore[untyped-decorator]
def _paths(
    mode: int, duration: Floats, maker: Ints, user: Ints, transfer: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return `Staged`'s seconds, after, last and backward.

    Nothing follows a W. A gradient op is followed by those of earlier stages, an F by later ones and its gradient op.
    """
    num_stages = len(duration)
    seconds, after, last = np.zeros(2 * num_stages), np.zeros(2 * num_stages), np.zeros(2 * num_stages)
    backward = np.zeros(num_stages)
    for turn in range(2 * num_stages):
        # Gradient ops of early stages first, then forwards of late ones.
        step = num_stages + turn if turn < num_stages else 2 * num_stages - 1 - turn
        s = step % num_stages
        if step < num_stages:
            after[step] = last[num_stages + s]
        for d in range(len(maker)):
            if maker[d] == step:
                after[step] = max(after[step], transfer[d] + last[user[d]])
        if step < num_stages:
            seconds[step] = duration[s, FORWARD]
            last[step] = seconds[step] + after[step]
            continue
        fused, first, second = (
            duration[s, BACKWARD],
            duration[s, BACKWARD_INPUT],
            duration[s, BACKWARD_WEIGHT],
        )
        split_path = first + max(second, after[step])
        if mode == FUSED:
            seconds[step], backward[s], last[step] = fused, fused, fused + after[step]
        elif mode == SPLIT:
            seconds[step], backward[s], last[step] = first, first + second, split_path
        else:
            seconds[step], backward[s] = min(first, fused), min(first + second, fused)
            last[step] = min(split_path, fused + after[step])
    return seconds, after, last, backward
