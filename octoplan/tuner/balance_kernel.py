"""Compiled walk over the cuts of a fixed placement that evens out the ranks' loads."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel


@kernel
def even_loads_kernel(arrays: Any, cuts: Any, ranks: Any, steps: int, hot: float, seed: int) -> Any:
    """Return the ``S + 1`` cuts with the smallest busiest rank that a walk from ``cuts`` meets.

    A rank's load is its work for one microbatch, and its share of what it waits for: the forwards before its first
    stage, and with fused backwards as much at the end (`octoplan_solvers.bounds.work_and_filling`). The walk moves one
    boundary by a layer, or two at once, and anneals the sum of squared loads from the temperature ``hot``, in squares
    of the mean layer's time, down to zero. A step takes well under a microsecond.
    """
    np.random.seed(seed)
    num_stages, num_ranks = len(ranks), arrays.num_ranks
    cuts = cuts.copy()
    best = cuts.copy()
    if num_stages < 2:
        return best
    first = np.full(num_ranks, -1, np.int64)
    load = np.zeros(num_ranks)
    mean = 0.0
    for stage in range(num_stages - 1, -1, -1):
        rank = ranks[stage]
        first[rank] = stage
        for layer in range(cuts[stage], cuts[stage + 1]):
            load[rank] += layer_time(arrays, arrays.rank_type[rank], layer)
    for rank in range(num_ranks):
        mean += load[rank] / len(arrays.no_cut)
        for layer in range(cuts[first[rank]]):
            load[rank] += waiting_time(arrays, layer)
    busiest = load.max()
    change = np.zeros(num_ranks)
    for step in range(steps):
        temperature = hot * mean * mean * (1.0 - step / steps)
        one = np.random.randint(1, num_stages)
        other = one if np.random.random() < 0.4 else np.random.randint(1, num_stages)
        step_one = 1 if np.random.random() < 0.5 else -1
        step_other = 0 if other == one else (1 if np.random.random() < 0.5 else -1)
        cuts[one] += step_one
        cuts[other] += step_other
        taken = cuts[one - 1] < cuts[one] < cuts[one + 1] and cuts[other - 1] < cuts[other] < cuts[other + 1]
        if taken:
            change[:] = 0.0
            add_change(arrays, cuts, ranks, first, one, step_one, change)
            if step_other != 0:
                add_change(arrays, cuts, ranks, first, other, step_other, change)
            worse = 0.0
            for rank in range(num_ranks):
                worse += change[rank] * (2.0 * load[rank] + change[rank])
            taken = worse <= 0.0 or np.random.random() < np.exp(-worse / temperature)
        if not taken:
            cuts[one] -= step_one
            cuts[other] -= step_other
            continue
        load += change
        if load.max() < busiest * (1.0 - 1e-9):
            busiest = load.max()
            best[:] = cuts
    return best


@kernel
def layer_time(arrays: Any, kind: int, layer: int) -> Any:
    """Return the seconds of a layer's ops for one microbatch on a device type."""
    return (
        arrays.forward[kind, layer + 1]
        - arrays.forward[kind, layer]
        + arrays.backward_input[kind, layer + 1]
        - arrays.backward_input[kind, layer]
        + arrays.backward_weight[kind, layer + 1]
        - arrays.backward_weight[kind, layer]
    )


@kernel
def waiting_time(arrays: Any, layer: int) -> Any:
    """Return what each microbatch's share of waiting grows by if a rank's first stage begins after a layer."""
    forward = np.inf
    both = np.inf
    for kind in range(len(arrays.forward)):
        forward = min(forward, arrays.forward[kind, layer + 1] - arrays.forward[kind, layer])
        both = min(both, layer_time(arrays, kind, layer))
    return (forward if arrays.split else both) / arrays.num_microbatches


@kernel
def add_change(arrays: Any, cuts: Any, ranks: Any, first: Any, cut: int, step: int, change: Any) -> None:
    """Add what the loads change by since a boundary has moved by one layer."""
    layer = cuts[cut] - 1 if step > 0 else cuts[cut]
    before, after = ranks[cut - 1], ranks[cut]
    change[before] += step * layer_time(arrays, arrays.rank_type[before], layer)
    change[after] -= step * layer_time(arrays, arrays.rank_type[after], layer)
    if first[after] == cut:
        change[after] += step * waiting_time(arrays, layer)
