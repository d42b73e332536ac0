"""Compiled kernel that cuts every idle interval by cause; definitions in `octoplan.simulator.attribution`."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan.simulator.kernels import locate_ops
from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import FORWARD, NUM_KINDS

FILLING = 0
DRAINING = 1
TRANSFER = 2
COMPUTE = 3
MEMORY = 4
NUM_CAUSES = 5


@kernel
def forward_ready_kernel(
    ops: Any,
    num_microbatches: int,
    num_stages: int,
    end: Any,
    edge_source: Any,
    edge_destination: Any,
    edge_crosses: Any,
    messages: Any,
    message_arrival: Any,
) -> Any:
    """Return ``(S, M)`` seconds at which every F has all its inputs."""
    forward, _, _ = locate_ops(ops, num_stages, num_microbatches)
    ready = np.zeros((num_stages, num_microbatches))
    for index in range(len(messages)):
        edge = messages[index] // num_microbatches // 2
        if (messages[index] // num_microbatches) % 2 == 0:
            stage, microbatch = edge_destination[edge], messages[index] % num_microbatches
            ready[stage, microbatch] = max(ready[stage, microbatch], message_arrival[index])
    for edge in range(len(edge_source)):
        if not edge_crosses[edge]:
            stage = edge_destination[edge]
            for microbatch in range(num_microbatches):
                done = end[forward[edge_source[edge], microbatch]]
                ready[stage, microbatch] = max(ready[stage, microbatch], done)
    return ready


@kernel
def attribution_kernel(
    ops: Any,
    rank_begin: Any,
    num_microbatches: int,
    start: Any,
    end: Any,
    binding: Any,
    messages: Any,
    edge_source: Any,
    edge_destination: Any,
    forward_ready: Any,
    forward_bytes: Any,
    limit: Any,
    curve_times: Any,
    curve_bytes: Any,
    curve_begin: Any,
    first_start: float,
    last_end: float,
    last_op: int,
) -> Any:
    """Return rank, start, end, cause and culprit (op, or number of ops + message) of every piece of idle time.

    ``forward_bytes`` are the ``(S,)`` bytes by which F of a stage raises its rank's memory; ``limit`` is infinite for
    ranks without one. Pieces come rank after rank, in order of time.
    """
    num_ops, num_stages = len(ops), len(forward_bytes)
    forward, backward, _ = locate_ops(ops, num_stages, num_microbatches)
    capacity = 3 * num_ops + 2 * len(limit)
    rank_of = np.empty(capacity, np.int64)
    cause_of = np.empty(capacity, np.int64)
    culprit_of = np.empty(capacity, np.int64)
    bounds = np.empty((capacity, 2))
    size = 0
    # For every op, the first F behind it on its rank.
    next_forward = np.empty(num_ops, np.int64)
    for rank in range(len(limit)):
        following = -1
        for index in range(rank_begin[rank + 1] - 1, rank_begin[rank] - 1, -1):
            next_forward[index] = following
            if ops[index] % NUM_KINDS == FORWARD:
                following = index
    for rank in range(len(limit)):
        first, behind = rank_begin[rank], rank_begin[rank + 1]
        point = curve_begin[rank]
        idle_since = first_start
        for index in range(first, behind + 1):
            until = start[index] if index < behind else last_end
            if until > idle_since:
                # Up to three pieces: [idle_since, cuts[0]), [cuts[0], cuts[1]), [cuts[1], until).
                waits_for, held_up = until, until
                causes = (FILLING, FILLING, FILLING)
                culprits = (index, index, index)
                if index == behind:
                    causes = (DRAINING, DRAINING, DRAINING)
                    culprits = (last_op, last_op, last_op)
                elif index > first:
                    message = binding[index] - num_ops
                    microbatch = messages[message] % num_microbatches
                    edge = messages[message] // num_microbatches // 2
                    if (messages[message] // num_microbatches) % 2 == 0:
                        producer = forward[edge_source[edge], microbatch]
                    else:
                        producer = backward[edge_destination[edge], microbatch]
                    waits_for = min(max(end[producer], idle_since), until)
                    upcoming = next_forward[index]
                    causes = (COMPUTE, TRANSFER, MEMORY)
                    culprits = (producer, binding[index], upcoming)
                    if upcoming >= 0 and limit[rank] < np.inf:
                        stage = ops[upcoming] // NUM_KINDS // num_microbatches
                        ready = forward_ready[stage, (ops[upcoming] // NUM_KINDS) % num_microbatches]
                        held_up = min(max(idle_since, ready), until)
                        # Memory only grows while a rank is idle: look for the first moment without room.
                        while point + 1 < curve_begin[rank + 1] and curve_times[point + 1] <= held_up:
                            point += 1
                        while held_up < until and curve_bytes[point] + forward_bytes[stage] <= limit[rank]:
                            held_up = until
                            if point + 1 < curve_begin[rank + 1]:
                                point += 1
                                held_up = min(curve_times[point], until)
                        waits_for = min(waits_for, held_up)
                cuts = (idle_since, waits_for, held_up, until)
                for piece in range(3):
                    if cuts[piece + 1] > cuts[piece]:
                        rank_of[size] = rank
                        cause_of[size] = causes[piece]
                        culprit_of[size] = culprits[piece]
                        bounds[size, 0], bounds[size, 1] = cuts[piece], cuts[piece + 1]
                        size += 1
            if index < behind:
                idle_since = end[index]
    return rank_of[:size], bounds[:size], cause_of[:size], culprit_of[:size]
