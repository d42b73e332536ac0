"""What one microbatch alone still needs on every rank: the room that list scheduling keeps free.

One microbatch alone passes through ``2 S`` chain ops: F of stages 0 to S-1, then B of stages S-1 to 0 (a split job may
fuse any backward, and B needs no stash). After q of them it holds ``held[r, q]`` bytes on rank r; to finish, it will
hold at most ``future[r, q]``. A state is safe if the microbatches in flight can finish one after another in order of
their numbers: for each rank r and each such microbatch k,

    sum over j > k of held[r, q_j]  +  future[r, q_k]  <=  limit - state.

An op that would break this is not started (the banker's rule of Dijkstra, 1965, applied to a chain). The oldest
microbatch is always allowed its next op, so no order dead-ends. Received tensors count from the start of their
producer, which is never later than their arrival: the real peak is never above the reckoned one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel


@kernel
def reserve_tables(
    num_ranks: int,
    stage_rank: Any,
    activation: Any,
    workspace: Any,
    edge_source: Any,
    edge_destination: Any,
    edge_bytes: Any,
    edge_crosses: Any,
) -> Any:
    """Return ``held`` and ``future``, both ``(R, 2 S + 1)`` bytes."""
    num_stages = len(stage_rank)
    steps = 2 * num_stages
    held = np.zeros((num_ranks, steps + 1))
    future = np.zeros((num_ranks, steps + 1))
    in_forward = np.zeros(num_stages)
    in_backward = np.zeros(num_stages)
    for edge in range(len(edge_source)):
        if edge_crosses[edge]:
            in_forward[edge_destination[edge]] += edge_bytes[edge]
            in_backward[edge_source[edge]] += edge_bytes[edge]
    for step in range(1, steps + 1):
        is_forward = step <= num_stages
        stage = step - 1 if is_forward else steps - step
        rank = stage_rank[stage]
        for other in range(num_ranks):
            held[other, step] = held[other, step - 1]
        before = held[rank, step - 1]
        if is_forward:
            held[rank, step] = before - in_forward[stage] + activation[stage]
            future[rank, step] = held[rank, step] + workspace[stage]
        else:
            running = before - in_backward[stage]
            held[rank, step] = running - activation[stage]
            future[rank, step] = running + workspace[stage]
        for edge in range(len(edge_source)):
            if not edge_crosses[edge]:
                continue
            if is_forward and edge_source[edge] == stage:
                held[stage_rank[edge_destination[edge]], step] += edge_bytes[edge]
            elif not is_forward and edge_destination[edge] == stage:
                held[stage_rank[edge_source[edge]], step] += edge_bytes[edge]
    # Turn the peak of each step into the largest over all steps still to come.
    for rank in range(num_ranks):
        later = 0.0
        for step in range(steps, -1, -1):
            own = future[rank, step]
            later = max(later, held[rank, step])
            future[rank, step] = later
            later = max(later, own)
    return held, future
