"""Compiled pricing of a candidate: partition, placement and policy in, makespan out.

The same reckoning as `octoplan_solvers.staged.build_staged` followed by list scheduling, from prefix sums and without
Python in between: it runs thousands of times a second, without the interpreter's lock. What comes out is only used to
steer the search; the plan's figures come from the exact simulation of the final order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.list_scheduling.kernel import list_schedule_kernel
from octoplan_solvers.list_scheduling.reserve import reserve_tables

#: Entries of a rule array: urgency, backward first, weight delay, alternate, memory bonus, patience of F, I and W.
URGENCY, BACKWARD_FIRST, WEIGHT_DELAY, ALTERNATE, MEMORY_BONUS, WAIT_F, WAIT_I, WAIT_W = range(8)
RULE_SIZE = 8
#: Columns of a delta array: biases of F, I and W, then whether the backward is fused.
FUSE = 3
DELTA_SIZE = 4


@kernel
def group(keys: Any, num_keys: int) -> Any:
    """Return, as CSR, the indices of each key, in order."""
    begin = np.zeros(num_keys + 1, np.int64)
    for key in keys:
        begin[key + 1] += 1
    for key in range(num_keys):
        begin[key + 1] += begin[key]
    fill = begin[:-1].copy()
    values = np.empty(len(keys), np.int64)
    for index in range(len(keys)):
        values[fill[keys[index]]] = index
        fill[keys[index]] += 1
    return begin, values


@kernel
def stage_totals(arrays: Any, cuts: Any, ranks: Any) -> Any:
    """Return ``(S, 4)`` durations, and ``(S,)`` activation, freed at I, stash and workspace bytes."""
    num_stages = len(ranks)
    duration = np.empty((num_stages, 4))
    activation = np.empty(num_stages)
    freed = np.empty(num_stages)
    stash = np.empty(num_stages)
    workspace = np.zeros(num_stages)
    for stage in range(num_stages):
        first, end = cuts[stage], cuts[stage + 1]
        kind = arrays.rank_type[ranks[stage]]
        overhead = arrays.op_overhead[ranks[stage]]
        backward_input = arrays.backward_input[kind, end] - arrays.backward_input[kind, first]
        backward_weight = arrays.backward_weight[kind, end] - arrays.backward_weight[kind, first]
        duration[stage, 0] = arrays.forward[kind, end] - arrays.forward[kind, first] + overhead
        duration[stage, 1] = backward_input + overhead
        duration[stage, 2] = backward_weight + overhead
        duration[stage, 3] = backward_input + backward_weight + overhead
        activation[stage] = arrays.activation[end] - arrays.activation[first]
        freed[stage] = activation[stage] - (arrays.retained[end] - arrays.retained[first])
        stash[stage] = arrays.stash[end] - arrays.stash[first]
        for layer in range(first, end):
            workspace[stage] = max(workspace[stage], arrays.workspace[layer])
    return duration, activation, freed, stash, workspace


@kernel
def stage_edges(arrays: Any, cuts: Any, num_stages: int) -> Any:
    """Return source, destination and bytes of every edge: the chain, and skips between other stages."""
    most = num_stages - 1 + len(arrays.skip_source)
    source = np.empty(most, np.int64)
    destination = np.empty(most, np.int64)
    size = np.empty(most)
    count = num_stages - 1
    for stage in range(count):
        source[stage] = stage
        destination[stage] = stage + 1
        size[stage] = arrays.output[cuts[stage + 1] - 1]
    for skip in range(len(arrays.skip_source)):
        start, end = 0, 0
        for stage in range(num_stages):
            if cuts[stage] <= arrays.skip_source[skip]:
                start = stage
            if cuts[stage] <= arrays.skip_destination[skip]:
                end = stage
        if start == end:
            continue
        found = -1
        for edge in range(count):
            if source[edge] == start and destination[edge] == end:
                found = edge
        if found < 0:
            found = count
            source[found], destination[found], size[found] = start, end, 0.0
            count += 1
        size[found] += arrays.skip_bytes[skip]
    # Sorted by (source, destination) as in `StagedProblem`: messages of one op leave in that order.
    for last in range(num_stages - 1, count):
        index = last
        while index > 0 and (
            source[index - 1] > source[index]
            or (source[index - 1] == source[index] and destination[index - 1] > destination[index])
        ):
            source[index - 1], source[index] = source[index], source[index - 1]
            destination[index - 1], destination[index] = destination[index], destination[index - 1]
            size[index - 1], size[index] = size[index], size[index - 1]
            index -= 1
    return source[:count], destination[:count], size[:count]


@kernel
def edge_links(arrays: Any, source: Any, destination: Any, size: Any, ranks: Any) -> Any:
    """Return whether each edge crosses ranks, its transfer time, latency and rank pair in both directions."""
    count = len(source)
    crosses = np.zeros(count, np.bool_)
    transfer = np.zeros((count, 2))
    latency = np.zeros((count, 2))
    pair = np.full((count, 2), -1, np.int64)
    number = np.full((arrays.num_ranks, arrays.num_ranks), -1, np.int64)
    num_pairs = 0
    for edge in range(count):
        one, other = ranks[source[edge]], ranks[destination[edge]]
        if one == other:
            continue
        crosses[edge] = True
        for direction in range(2):
            if number[one, other] < 0:
                number[one, other] = num_pairs
                num_pairs += 1
            pair[edge, direction] = number[one, other]
            transfer[edge, direction] = size[edge] / arrays.bandwidth[one, other]
            latency[edge, direction] = arrays.latency[one, other]
            one, other = other, one
    pair_source = np.empty(num_pairs, np.int64)
    pair_destination = np.empty(num_pairs, np.int64)
    for one in range(arrays.num_ranks):
        for other in range(arrays.num_ranks):
            if number[one, other] >= 0:
                pair_source[number[one, other]] = one
                pair_destination[number[one, other]] = other
    return crosses, transfer, latency, pair, pair_source, pair_destination


@kernel
def rule_bias(
    split: bool,
    duration: Any,
    source: Any,
    destination: Any,
    transfer: Any,
    latency: Any,
    ranks: Any,
    num_ranks: int,
    rule: Any,
) -> Any:
    """Return ``(S, 3)`` biases of a rule (see `octoplan_solvers.list_scheduling.PolicyRule`)."""
    num_stages = len(ranks)
    backward = 1 if split else 3
    delay = np.zeros((num_stages, 2))
    for edge in range(len(source)):
        if destination[edge] == source[edge] + 1:
            delay[source[edge], 0] = transfer[edge, 0] + latency[edge, 0]
            delay[source[edge], 1] = transfer[edge, 1] + latency[edge, 1]
    path = np.zeros((num_stages, 2))
    work = np.zeros(num_ranks)
    for stage in range(num_stages):
        after = 0.0
        if stage > 0:
            after = path[stage - 1, 1] + delay[stage - 1, 1]
        path[stage, 1] = duration[stage, backward] + after
        work[ranks[stage]] += duration[stage, 0]
        work[ranks[stage]] += duration[stage, 1] + duration[stage, 2] if split else duration[stage, 3]
    for stage in range(num_stages - 1, -1, -1):
        if stage + 1 < num_stages:
            after = path[stage + 1, 0] + delay[stage, 0]
        else:
            after = path[stage, 1]
        path[stage, 0] = duration[stage, 0] + after
    period = max(work.max(), 1e-300)
    bias = np.empty((num_stages, 3))
    for stage in range(num_stages):
        bias[stage, 0] = -rule[URGENCY] * path[stage, 0] / period
        bias[stage, 1] = -rule[URGENCY] * path[stage, 1] / period - rule[BACKWARD_FIRST]
        bias[stage, 2] = rule[WEIGHT_DELAY]
    return bias


@kernel
def price_kernel(arrays: Any, cuts: Any, ranks: Any, rule: Any, delta: Any, give_up_s: float) -> Any:
    """Return the makespan in seconds; infinite above ``give_up_s``, or if one microbatch does not fit.

    With extra microbatches it is an estimate, as `octoplan.tuner.arrays.scheduled_microbatches` says.

    ``cuts`` are the ``S + 1`` ends of the stages; ``delta`` the ``(S, 4)`` biases added to the rule's, and in its last
    column 1 where a stage's backward is fused.
    """
    num_stages = len(ranks)
    num_ranks = arrays.num_ranks
    duration, activation, freed, stash, workspace = stage_totals(arrays, cuts, ranks)
    busiest = busiest_rank(arrays, duration, ranks)
    extra = arrays.extra_microbatches * busiest
    if arrays.num_microbatches * busiest + extra > give_up_s:
        return np.inf
    source, destination, size = stage_edges(arrays, cuts, num_stages)
    crosses, transfer, latency, pair, pair_source, pair_destination = edge_links(
        arrays, source, destination, size, ranks
    )
    room = np.full(num_ranks, np.inf)
    held = np.zeros((num_ranks, 2 * num_stages + 1))
    future = held
    if arrays.limited:
        held, future = reserve_tables(
            num_ranks, ranks, activation, workspace, source, destination, size, crosses
        )
        for rank in range(num_ranks):
            room[rank] = arrays.memory_limit[rank]
        for stage in range(num_stages):
            room[ranks[stage]] -= arrays.state[cuts[stage + 1]] - arrays.state[cuts[stage]]
        for rank in range(num_ranks):
            room[rank] = min(room[rank], arrays.dynamic_limit)
            if future[rank, 0] > room[rank]:
                return np.inf
    bias = rule_bias(arrays.split, duration, source, destination, transfer, latency, ranks, num_ranks, rule)
    for stage in range(num_stages):
        for kind_class in range(3):
            bias[stage, kind_class] += delta[stage, kind_class]
    fuse = delta[:, FUSE] > 0.5
    fuse[0] |= arrays.fuse_first_stage
    rank_begin, rank_stages = group(ranks, num_ranks)
    in_begin, in_edges = group(destination, num_stages)
    out_begin, out_edges = group(source, num_stages)
    neighbour_begin, neighbour_pairs = group(pair_source, num_ranks)
    _, _, makespan = list_schedule_kernel(
        num_ranks,
        arrays.num_microbatches,
        arrays.split,
        ranks,
        duration,
        activation,
        freed,
        stash,
        workspace,
        source,
        destination,
        size,
        crosses,
        transfer,
        latency,
        pair,
        len(pair_source),
        rank_begin,
        rank_stages,
        in_begin,
        in_edges,
        out_begin,
        out_edges,
        neighbour_begin,
        pair_destination[neighbour_pairs],
        room,
        arrays.limited,
        held,
        future,
        bias,
        np.full(num_stages, arrays.num_microbatches, np.int64),
        fuse,
        arrays.rank_max_in_flight,
        rule[ALTERNATE],
        rule[MEMORY_BONUS],
        rule[WAIT_F:],
        give_up_s - extra,
    )
    return makespan + extra


@kernel
def busiest_rank(arrays: Any, duration: Any, ranks: Any) -> Any:
    """Return the busiest rank's seconds of compute per microbatch: no order is faster."""
    work = np.zeros(arrays.num_ranks)
    for stage in range(len(ranks)):
        backward = duration[stage, 3]
        if arrays.split:
            backward = min(backward, duration[stage, 1] + duration[stage, 2])
        work[ranks[stage]] += duration[stage, 0] + backward
    return work.max()
