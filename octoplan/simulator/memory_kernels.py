"""Compiled kernels for memory over time (contract, section 4, point 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS


@kernel
def merge_arrivals(
    messages: Any,
    pair_begin: Any,
    pair_destination: Any,
    message_arrival: Any,
    num_microbatches: int,
    edge_bytes: Any,
    num_ranks: int,
) -> Any:
    """Return sorted arrival times and their bytes for every rank, rank after rank, and where each rank begins.

    Arrivals of one pair are in order already: those of a rank are merged from the few pairs that lead to it.
    """
    num_pairs = len(pair_destination)
    times = np.empty(len(messages))
    sizes = np.empty(len(messages))
    begin = np.zeros(num_ranks + 1, np.int64)
    following = np.empty(num_pairs, np.int64)
    open_pairs = np.empty(num_pairs, np.int64)
    filled = 0
    for rank in range(num_ranks):
        num_open = 0
        for pair in range(num_pairs):
            if pair_destination[pair] == rank and pair_begin[pair] < pair_begin[pair + 1]:
                following[pair] = pair_begin[pair]
                open_pairs[num_open] = pair
                num_open += 1
        while num_open > 0:
            first = 0
            for candidate in range(1, num_open):
                arrival = message_arrival[following[open_pairs[candidate]]]
                if arrival < message_arrival[following[open_pairs[first]]]:
                    first = candidate
            pair = open_pairs[first]
            index = following[pair]
            times[filled] = message_arrival[index]
            sizes[filled] = edge_bytes[messages[index] // num_microbatches // 2]
            filled += 1
            following[pair] += 1
            if following[pair] == pair_begin[pair + 1]:
                num_open -= 1
                open_pairs[first] = open_pairs[num_open]
        begin[rank + 1] = filled
    return times, sizes, begin


@kernel
def memory_kernel(
    ops: Any,
    rank_begin: Any,
    num_microbatches: int,
    start: Any,
    end: Any,
    arrivals: Any,
    arrival_bytes: Any,
    arrival_begin: Any,
    received_forward: Any,
    received_backward: Any,
    activation: Any,
    freed_at_input: Any,
    stash: Any,
    workspace: Any,
    state: Any,
    curve: bool,
) -> Any:
    """Follow each rank's memory; intervals are half-open, so what ends at an instant frees before it is measured.

    ``arrivals[arrival_begin[r]:arrival_begin[r + 1]]`` are the sorted arrival times at rank r with their bytes;
    ``received_*`` are the received bytes that F, and I or B, of each stage release at their start.

    Returns the peak of every rank, when it is first reached, and (if ``curve``) ``(times, bytes, begin)``.
    """
    num_ranks = len(rank_begin) - 1
    peak = state.copy()
    peak_at = np.zeros(num_ranks)
    size = 2 * len(ops) + len(arrivals) + num_ranks if curve else 0
    times = np.empty(size)
    values = np.empty(size)
    begin = np.zeros(num_ranks + 1, np.int64)
    filled = 0
    for rank in range(num_ranks):
        held = state[rank]
        arrival = arrival_begin[rank]
        last_arrival = arrival_begin[rank + 1]
        if curve:
            times[filled] = 0.0
            values[filled] = held
            filled += 1
        for boundary in range(2 * rank_begin[rank], 2 * rank_begin[rank + 1]):
            index = boundary // 2
            now = start[index] if boundary % 2 == 0 else end[index]
            while arrival < last_arrival and arrivals[arrival] < now:
                held += arrival_bytes[arrival]
                arrival += 1
                if arrival == last_arrival or arrivals[arrival] > arrivals[arrival - 1]:
                    if held > peak[rank]:
                        peak[rank] = held
                        peak_at[rank] = arrivals[arrival - 1]
                    if curve:
                        times[filled] = arrivals[arrival - 1]
                        values[filled] = held
                        filled += 1
            while arrival < last_arrival and arrivals[arrival] == now:
                held += arrival_bytes[arrival]
                arrival += 1
            kind = ops[index] % NUM_KINDS
            stage = ops[index] // NUM_KINDS // num_microbatches
            if boundary % 2 == 0:
                held += workspace[stage]
                if kind == FORWARD:
                    held += activation[stage] - received_forward[stage]
                elif kind != BACKWARD_WEIGHT:
                    held -= received_backward[stage]
                upcoming = end[index]
            else:
                held -= workspace[stage]
                if kind == BACKWARD_INPUT:
                    held += stash[stage] - freed_at_input[stage]
                elif kind == BACKWARD_WEIGHT:
                    held -= stash[stage] + activation[stage] - freed_at_input[stage]
                elif kind == BACKWARD:
                    held -= activation[stage]
                upcoming = start[index + 1] if index + 1 < rank_begin[rank + 1] else np.inf
            if upcoming > now:
                if held > peak[rank]:
                    peak[rank] = held
                    peak_at[rank] = now
                if curve:
                    times[filled] = now
                    values[filled] = held
                    filled += 1
        begin[rank + 1] = filled
    return peak, peak_at, times[:filled], values[:filled], begin
