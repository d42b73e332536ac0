"""Repetitions: stretches of a schedule that may be run any number of times.

Take two instants of a schedule. Say that at both, every stage is equally far ahead of the first stage's forwards: as
many F, backwards and W done, less the same number u. Then what every rank does between them leads from a state to the
same state u microbatches later, and may be done any number of times: all that ops wait for is done, and all that
memory holds is the same. So an order for few microbatches gives one for many, in time that depends only on the number
of ops to write down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from octoplan_solvers.ops import NUM_KINDS, FloatArray, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.timing import Timing, time_order
from octoplan_solvers.order_search.window import op_indices, sort_by_microbatch
from octoplan_solvers.staged import StagedProblem


@dataclass(frozen=True)
class Repetition:
    """An order whose ops at positions ``[begin[r], end[r])`` of each rank may be repeated."""

    order: Order
    begin: IntArray
    end: IntArray
    #: Microbatches that one repetition adds.
    num_microbatches: int
    #: Seconds of the order alone, and seconds that each further microbatch takes, in the long run.
    makespan_s: float
    seconds_per_microbatch: float

    def makespan_for(self, num_microbatches: int) -> float:
        """Predict the makespan in seconds for more microbatches than the order has."""
        more = num_microbatches - self.order.num_microbatches
        return self.makespan_s + more * self.seconds_per_microbatch


def find_repetitions(staged: StagedProblem, order: Order, largest: int) -> list[Repetition]:
    """Return the fastest repetition of one microbatch, of two, and so on, if faster than all smaller ones.

    Parameters
    ----------
    order:
        For ``staged.num_microbatches``.
    largest:
        Most microbatches of a repetition.
    """
    timing = time_seconds(staged, order)
    instants = timing.start[0, 0]
    start = timing.start[op_indices(order.ops, order.num_microbatches)]
    found: list[Repetition] = []
    for first, second in _equal_states(_states(order, start, instants, staged.num_stages), instants, largest):
        begin, end = (_positions(order, start, float(instants[m])) for m in (first, second))
        candidate = _with_measured_rate(staged, Repetition(order, begin, end, second - first, 0.0, 0.0))
        if not found or candidate.seconds_per_microbatch < found[-1].seconds_per_microbatch * (1 - 1e-9):
            found.append(candidate)
    return found


def time_seconds(staged: StagedProblem, order: Order) -> Timing:
    """Time an order in seconds."""
    return time_order(staged, order, staged.duration_s, staged.transfer_s, staged.latency_s)


def _states(order: Order, start: FloatArray, instants: FloatArray, num_stages: int) -> IntArray:
    """Return ``(T, S, 3)``: F begun, backwards begun and W still owed, relative to the first stage's F."""
    stage, _, _ = op_indices(order.ops, order.num_microbatches)
    kind = order.ops % NUM_KINDS
    counts = np.zeros((len(instants), num_stages, NUM_KINDS), dtype=np.int64)
    for s in range(num_stages):
        for k in range(NUM_KINDS):
            counts[:, s, k] = np.searchsorted(np.sort(start[(stage == s) & (kind == k)]), instants)
    forward, apart, weight, together = np.moveaxis(counts, 2, 0)
    begun = forward[:, :1]
    return np.stack([forward - begun, apart + together - begun, apart - weight], axis=2)


def _equal_states(states: IntArray, instants: FloatArray, largest: int) -> list[tuple[int, int]]:
    """Return pairs of first-stage forwards with equal states: of each distance the fastest, and one in the middle.

    A fast one may owe that to the filling of the pipeline; only repeating it tells.
    """
    _, label = np.unique(states.reshape(len(states), -1), axis=0, return_inverse=True)
    label = label.reshape(-1)
    pairs: list[tuple[int, int]] = []
    for size in range(1, min(largest, len(states) - 1) + 1):
        begins = np.flatnonzero(label[:-size] == label[size:])
        if len(begins):
            fastest = int(begins[np.argmin((instants[size:] - instants[:-size])[begins])])
            pairs += [(begin, begin + size) for begin in sorted({fastest, int(begins[len(begins) // 2])})]
    return pairs


def _positions(order: Order, start: FloatArray, instant: float) -> IntArray:
    """Return how many ops of each rank start before an instant."""
    return np.array(
        [
            np.searchsorted(start[order.rank_begin[rank] : order.rank_begin[rank + 1]], instant)
            for rank in range(order.num_ranks)
        ],
        dtype=np.int64,
    )


def _with_measured_rate(staged: StagedProblem, candidate: Repetition) -> Repetition:
    """Measure how long repetitions take once they have settled: later ones wait for each other alone."""
    more = 4 * candidate.num_microbatches
    makespans = [
        float(
            time_seconds(staged, repeat(candidate, candidate.order.num_microbatches + times * more)).makespan
        )
        for times in (1, 2)
    ]
    rate = (makespans[1] - makespans[0]) / more
    return replace(candidate, makespan_s=makespans[0] - more * rate, seconds_per_microbatch=rate)


def repeat(repetition: Repetition, num_microbatches: int) -> Order:
    """Return the order for more microbatches: its beginning, the repeated part as often as needed, its end."""
    order = repetition.order
    more, rest = divmod(num_microbatches - order.num_microbatches, repetition.num_microbatches)
    assert rest == 0, "not a whole number of repetitions"
    parts, lengths = [], [0]
    for rank in range(order.num_ranks):
        codes = order.of_rank(rank)
        # Only stage and kind matter here: the numbers of microbatches follow from their order.
        chains = codes // NUM_KINDS // order.num_microbatches * NUM_KINDS + codes % NUM_KINDS
        begin, end = repetition.begin[rank], repetition.end[rank]
        parts += [chains[:end], np.tile(chains[begin:end], more), chains[end:]]
        lengths.append(len(chains) + more * int(end - begin))
    chain = np.concatenate(parts)
    codes = chain // NUM_KINDS * num_microbatches * NUM_KINDS + chain % NUM_KINDS
    begins = np.cumsum(lengths).astype(np.int64)
    return sort_by_microbatch(Order(codes, begins, num_microbatches))
