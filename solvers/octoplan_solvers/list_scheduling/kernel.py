"""The compiled event loop of list scheduling: idle ranks start the best op that they may."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS


@kernel
def push_event(times: Any, codes: Any, size: int, time: float, code: int) -> int:
    """Add an event to a binary heap ordered by time, then code; return the new size."""
    position = size
    while position > 0:
        parent = (position - 1) // 2
        if times[parent] < time or (times[parent] == time and codes[parent] <= code):
            break
        times[position] = times[parent]
        codes[position] = codes[parent]
        position = parent
    times[position] = time
    codes[position] = code
    return size + 1


@kernel
def pop_event(times: Any, codes: Any, size: int) -> int:
    """Remove the first event (read it before); return the new size."""
    size -= 1
    time, code = times[size], codes[size]
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            times[right] < times[child] or (times[right] == times[child] and codes[right] < codes[child])
        ):
            child = right
        if time < times[child] or (time == times[child] and code <= codes[child]):
            break
        times[position] = times[child]
        codes[position] = codes[child]
        position = child
    times[position] = time
    codes[position] = code
    return size


@kernel
def keeps_room(
    rank: int,
    microbatch: int,
    oldest: int,
    change: float,
    total: float,
    limit: float,
    position: Any,
    held: Any,
    future: Any,
) -> bool:
    """Decide whether every older microbatch can still finish if this one takes ``change`` more bytes on the rank."""
    others = total + change
    for older in range(oldest, microbatch):
        others -= held[rank, position[older]]
        if others + future[rank, position[older]] > limit:
            return False
    return True


@kernel
def next_pending_weight(is_fused: Any, stage: int, microbatch: int, done: int) -> int:
    """Return the first microbatch from ``microbatch`` on whose W is an op of its own, or ``done``."""
    while microbatch < done and is_fused[stage, microbatch]:
        microbatch += 1
    return microbatch


@kernel
def list_schedule_kernel(
    num_ranks: int,
    num_microbatches: int,
    split: bool,
    stage_rank: Any,
    duration_s: Any,
    activation: Any,
    freed_at_input: Any,
    stash: Any,
    workspace: Any,
    edge_source: Any,
    edge_destination: Any,
    edge_bytes: Any,
    edge_crosses: Any,
    transfer_s: Any,
    latency_s: Any,
    edge_pair: Any,
    num_pairs: int,
    rank_stage_begin: Any,
    rank_stages: Any,
    in_begin: Any,
    in_edges: Any,
    out_begin: Any,
    out_edges: Any,
    neighbour_begin: Any,
    neighbours: Any,
    room: Any,
    limited: bool,
    held: Any,
    future: Any,
    bias: Any,
    max_in_flight: Any,
    fuse: Any,
    rank_max_in_flight: Any,
    alternate: float,
    memory_bonus: float,
    patience: Any,
    give_up_s: float,
) -> Any:
    """Build an order. ``room`` is limit less state, per rank; see `octoplan_solvers.list_scheduling.reserve`.

    Returns
    -------
    ops, rank_of_op:
        Op codes in the order of their start, and the rank of each; fewer than all if it stopped early.
    makespan:
        Seconds, infinite if longer than ``give_up_s``, which shows as soon as a rank's remaining work alone would
        take longer, or if no op could start, for want of memory.
    """
    num_stages = len(stage_rank)
    num_ops = num_stages * num_microbatches * (3 if split else 2)
    # In a split job a backward may still be one B: where the policy says so, or where memory asks for it.
    is_fused = np.zeros((num_stages, num_microbatches), np.bool_)
    ops = np.empty(num_ops, np.int64)
    rank_of_op = np.empty(num_ops, np.int32)
    count = 0

    next_forward = np.zeros(num_stages, np.int64)
    next_backward = np.zeros(num_stages, np.int64)
    next_weight = np.zeros(num_stages, np.int64)
    done_forward = np.zeros(num_stages, np.int64)
    done_backward = np.zeros(num_stages, np.int64)
    done_weight = np.zeros(num_stages, np.int64)
    available = np.zeros((len(edge_source), 2), np.int64)
    known = np.zeros((len(edge_source), 2), np.int64)
    arrival = np.empty((len(edge_source) * 2, num_microbatches))
    pair_free = np.zeros(num_pairs)

    position = np.zeros(num_microbatches, np.int64)
    oldest = 0
    total = np.zeros(num_ranks)
    used = np.zeros(num_ranks)
    running_workspace = np.zeros(num_ranks)
    live = np.zeros(num_ranks, np.int64)
    first_stage = np.empty(num_ranks, np.int64)
    left_on_rank = np.zeros((num_ranks, num_microbatches), np.int64)
    # Loops, because numba takes seconds to compile slices and sums.
    mean = 0.0
    for stage in range(num_stages - 1, -1, -1):
        first_stage[stage_rank[stage]] = stage
        for kind in range(3):
            mean += duration_s[stage, kind] / (3 * num_stages)
        for microbatch in range(num_microbatches):
            left_on_rank[stage_rank[stage], microbatch] += 1

    # Seconds of compute that each rank has still to start, at the least.
    left_s = np.zeros(num_ranks)
    for stage in range(num_stages):
        backward_s = duration_s[stage, BACKWARD]
        if split:
            backward_s = min(
                backward_s, duration_s[stage, BACKWARD_INPUT] + duration_s[stage, BACKWARD_WEIGHT]
            )
        left_s[stage_rank[stage]] += num_microbatches * (duration_s[stage, FORWARD] + backward_s)
    latest_s = give_up_s * (1.0 + 1e-12)

    running = np.empty(num_ranks, np.int64)
    last_class = np.empty(num_ranks, np.int64)
    blocked = np.zeros(num_ranks, np.bool_)
    dirty = np.empty(num_ranks, np.bool_)
    for rank in range(num_ranks):
        running[rank] = -1
        last_class[rank] = -1
        dirty[rank] = True
    times = np.empty(num_ranks + 2 * len(edge_source) * num_microbatches + 1)
    codes = np.empty(num_ranks + 2 * len(edge_source) * num_microbatches + 1, np.int64)
    size = 0
    epsilon = 1e-9 * mean
    now = 0.0
    makespan = 0.0

    while True:
        again = False
        for rank in range(num_ranks):
            if not dirty[rank] or running[rank] >= 0:
                continue
            dirty[rank] = False
            blocked[rank] = False
            # Largest workspace among pending W's: any op that starts must leave room for it.
            pending_workspace = 0.0
            if limited and split:
                for index in range(rank_stage_begin[rank], rank_stage_begin[rank + 1]):
                    stage = rank_stages[index]
                    if next_weight[stage] < done_backward[stage]:
                        pending_workspace = max(pending_workspace, workspace[stage])
            best_key = np.inf
            best_stage = -1
            best_class = -1
            best_fused = False
            wants_memory = False
            soon_key = np.inf
            soon_time = np.inf
            for index in range(rank_stage_begin[rank], rank_stage_begin[rank + 1]):
                stage = rank_stages[index]
                for kind_class in range(2):
                    if kind_class == 0:
                        microbatch = next_forward[stage]
                        if (
                            microbatch == num_microbatches
                            or microbatch - done_backward[stage] >= max_in_flight[stage]
                        ):
                            continue
                        if stage == first_stage[rank] and live[rank] >= rank_max_in_flight[rank]:
                            continue
                        ready_at = now
                        for e in range(in_begin[stage], in_begin[stage + 1]):
                            edge = in_edges[e]
                            if available[edge, 0] <= microbatch:
                                if known[edge, 0] > microbatch:
                                    ready_at = max(ready_at, arrival[edge * 2, microbatch])
                                else:
                                    ready_at = np.inf
                    else:
                        microbatch = next_backward[stage]
                        if microbatch == num_microbatches or done_forward[stage] <= microbatch:
                            continue
                        ready_at = now
                        for e in range(out_begin[stage], out_begin[stage + 1]):
                            edge = out_edges[e]
                            if available[edge, 1] <= microbatch:
                                if known[edge, 1] > microbatch:
                                    ready_at = max(ready_at, arrival[edge * 2 + 1, microbatch])
                                else:
                                    ready_at = np.inf
                    if ready_at == np.inf:
                        continue
                    key = microbatch + bias[stage, kind_class]
                    if last_class[rank] >= 0 and last_class[rank] != kind_class:
                        key -= alternate
                    if ready_at > now:
                        if key < soon_key:
                            soon_key = key
                            soon_time = ready_at
                        elif ready_at < soon_time and key == soon_key:
                            soon_time = ready_at
                        continue
                    if key >= best_key:
                        continue
                    fused = not split or fuse[stage]
                    if limited:
                        step = stage + 1 if kind_class == 0 else 2 * num_stages - stage
                        fits = True
                        change = held[rank, step] - held[rank, step - 1]
                        need = change + max(workspace[stage], pending_workspace)
                        if kind_class == 1:
                            need += activation[stage]
                            extra = max(0.0, stash[stage] - freed_at_input[stage])
                            if not fused and used[rank] + need + extra > room[rank]:
                                fused = True
                            if not fused:
                                need += extra
                        if used[rank] + need > room[rank] or (
                            change > 0.0
                            and not keeps_room(
                                rank,
                                microbatch,
                                oldest,
                                change,
                                total[rank],
                                room[rank],
                                position,
                                held,
                                future,
                            )
                        ):
                            fits = False
                        if fits:
                            first_edge = out_begin[stage] if kind_class == 0 else in_begin[stage]
                            end_edge = out_begin[stage + 1] if kind_class == 0 else in_begin[stage + 1]
                            for e in range(first_edge, end_edge):
                                edge = out_edges[e] if kind_class == 0 else in_edges[e]
                                if not edge_crosses[edge]:
                                    continue
                                other_stage = edge_destination[edge] if kind_class == 0 else edge_source[edge]
                                other = stage_rank[other_stage]
                                growth = held[other, step] - held[other, step - 1]
                                if growth <= 0.0:
                                    continue
                                other_workspace = running_workspace[other]
                                if split:
                                    for i in range(rank_stage_begin[other], rank_stage_begin[other + 1]):
                                        local = rank_stages[i]
                                        if next_weight[local] < next_backward[local]:
                                            other_workspace = max(other_workspace, workspace[local])
                                if used[other] + growth + other_workspace > room[other] or not keeps_room(
                                    other,
                                    microbatch,
                                    oldest,
                                    growth,
                                    total[other],
                                    room[other],
                                    position,
                                    held,
                                    future,
                                ):
                                    fits = False
                                    break
                        if not fits:
                            blocked[rank] = True
                            wants_memory = wants_memory or kind_class == 0
                            continue
                    best_key = key
                    best_stage = stage
                    best_class = kind_class
                    best_fused = fused
            if split:
                for index in range(rank_stage_begin[rank], rank_stage_begin[rank + 1]):
                    stage = rank_stages[index]
                    microbatch = next_weight[stage]
                    if microbatch < done_backward[stage]:
                        key = microbatch + bias[stage, 2]
                        if wants_memory:
                            key -= memory_bonus
                        if key < best_key:
                            best_key = key
                            best_stage = stage
                            best_class = 2
            if best_stage < 0:
                continue
            if best_class == 0:
                kind = FORWARD
            elif best_class == 2:
                kind = BACKWARD_WEIGHT
            else:
                kind = BACKWARD if best_fused else BACKWARD_INPUT
            length = duration_s[best_stage, kind]
            if soon_key < best_key and not wants_memory and soon_time <= now + patience[best_class] * length:
                continue
            # Start it.
            stage = best_stage
            end = now + length
            if best_class == 0:
                microbatch = next_forward[stage]
                next_forward[stage] += 1
            elif best_class == 1:
                microbatch = next_backward[stage]
                next_backward[stage] += 1
            else:
                microbatch = next_weight[stage]
                next_weight[stage] = next_pending_weight(
                    is_fused, stage, microbatch + 1, done_backward[stage]
                )
            if kind == BACKWARD:
                is_fused[stage, microbatch] = True
                if split:
                    num_ops -= 1
            if end > makespan:
                makespan = end
            ops[count] = (stage * num_microbatches + microbatch) * NUM_KINDS + kind
            rank_of_op[count] = rank
            count += 1
            running[rank] = (stage * num_microbatches + microbatch) * NUM_KINDS + kind
            if best_class < 2:
                last_class[rank] = best_class
                step = stage + 1 if best_class == 0 else 2 * num_stages - stage
                if best_class == 0 and stage == first_stage[rank]:
                    live[rank] += 1
                if limited:
                    change = held[rank, step] - held[rank, step - 1]
                    total[rank] += change
                    used[rank] += change
                    if best_class == 1:
                        # Nothing is freed yet; what W will need beyond that is set aside at once.
                        used[rank] += activation[stage]
                        if kind == BACKWARD_INPUT:
                            used[rank] += max(0.0, stash[stage] - freed_at_input[stage])
                    for index in range(neighbour_begin[rank], neighbour_begin[rank + 1]):
                        other = neighbours[index]
                        if blocked[other]:
                            dirty[other] = True
                            again = True
                first_edge = out_begin[stage] if best_class == 0 else in_begin[stage]
                end_edge = out_begin[stage + 1] if best_class == 0 else in_begin[stage + 1]
                for e in range(first_edge, end_edge):
                    edge = out_edges[e] if best_class == 0 else in_edges[e]
                    if edge_crosses[edge]:
                        pair = edge_pair[edge, best_class]
                        begins = max(end, pair_free[pair])
                        pair_free[pair] = begins + transfer_s[edge, best_class]
                        when = pair_free[pair] + latency_s[edge, best_class]
                        other = stage_rank[edge_destination[edge] if best_class == 0 else edge_source[edge]]
                        if limited:
                            growth = edge_bytes[edge]
                            total[other] += growth
                            used[other] += growth
                        arrival[edge * 2 + best_class, microbatch] = when
                        known[edge, best_class] = microbatch + 1
                        size = push_event(times, codes, size, when, num_ranks + edge * 2 + best_class)
                        dirty[other] = True
                position[microbatch] = step
            running_workspace[rank] = workspace[stage]
            size = push_event(times, codes, size, end, rank)
            if kind == BACKWARD_INPUT:
                backward_s = min(duration_s[stage, BACKWARD], length + duration_s[stage, BACKWARD_WEIGHT])
                left_s[rank] -= backward_s - duration_s[stage, BACKWARD_WEIGHT]
            elif kind == BACKWARD and split:
                left_s[rank] -= min(
                    length, duration_s[stage, BACKWARD_INPUT] + duration_s[stage, BACKWARD_WEIGHT]
                )
            else:
                left_s[rank] -= length
            if makespan > give_up_s or end + left_s[rank] > latest_s:
                return ops[:count], rank_of_op[:count], np.inf
        if again:
            continue
        if size == 0:
            break
        # Move on to the next events; those within rounding error of each other are one instant.
        horizon = times[0] + epsilon
        while size > 0 and times[0] <= horizon:
            now = max(now, times[0])
            code = codes[0]
            size = pop_event(times, codes, size)
            if code >= num_ranks:
                edge = (code - num_ranks) // 2
                direction = (code - num_ranks) % 2
                available[edge, direction] += 1
                dirty[stage_rank[edge_destination[edge] if direction == 0 else edge_source[edge]]] = True
                continue
            rank = code
            op = running[rank]
            running[rank] = -1
            running_workspace[rank] = 0.0
            dirty[rank] = True
            kind = op % NUM_KINDS
            microbatch = (op // NUM_KINDS) % num_microbatches
            stage = op // NUM_KINDS // num_microbatches
            if kind == FORWARD:
                done_forward[stage] += 1
                for e in range(out_begin[stage], out_begin[stage + 1]):
                    if not edge_crosses[out_edges[e]]:
                        available[out_edges[e], 0] += 1
            elif kind == BACKWARD_WEIGHT:
                done_weight[stage] += 1
                if limited:
                    used[rank] -= stash[stage] + activation[stage] - freed_at_input[stage]
            else:
                done_backward[stage] += 1
                next_weight[stage] = next_pending_weight(
                    is_fused, stage, next_weight[stage], done_backward[stage]
                )
                for e in range(in_begin[stage], in_begin[stage + 1]):
                    if not edge_crosses[in_edges[e]]:
                        available[in_edges[e], 1] += 1
                if limited:
                    if kind == BACKWARD:
                        used[rank] -= activation[stage]
                    else:
                        used[rank] -= max(0.0, freed_at_input[stage] - stash[stage])
                if stage == 0:
                    while (
                        oldest < num_microbatches
                        and position[oldest] == 2 * num_stages
                        and done_backward[0] > oldest
                    ):
                        oldest += 1
            if kind in (BACKWARD, BACKWARD_WEIGHT):
                left_on_rank[rank, microbatch] -= 1
                if left_on_rank[rank, microbatch] == 0:
                    live[rank] -= 1
            if limited:
                for index in range(neighbour_begin[rank], neighbour_begin[rank + 1]):
                    if blocked[neighbours[index]]:
                        dirty[neighbours[index]] = True
    if count < num_ops:
        makespan = np.inf
    return ops[:count], rank_of_op[:count], makespan
