"""`Window`: the part of an order that a model may change, and what the rest of the order asks of it.

A window is a run of consecutive ops on every rank. What comes before keeps its start times: it gives the window's
ops release times. What comes after keeps its order: it gives them tails. As every rank runs all of its window before
whatever comes after, the makespan is the longest of these: paths that miss the window, and the end of each op in
the window plus the tail of each thing that waits for it. Nothing is lost by leaving the rest out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.timing import CLASS_OF_KIND, Timing, time_order
from octoplan_solvers.staged import StagedProblem

BEFORE, INSIDE, AFTER = -1, 0, 1

#: An op: stage, class (0: F, 1: I or B, 2: W), microbatch.
Op = tuple[int, int, int]


@dataclass(frozen=True)
class Window:
    """What a model decides: the ops of a window, and the circumstances that the rest of the order sets."""

    staged: StagedProblem
    times: IntegerTimes
    #: Ops of each rank, in their present order.
    ops: list[list[Op]]
    #: ``(S, 3, M)``: whether each op comes before, inside or after.
    place: IntArray
    #: ``(S, 3, M)``: may change places; the others keep their order among themselves.
    is_free: npt.NDArray[np.bool_]
    #: ``(R,)`` end of the rank's last op before, and the tail of its first op after.
    rank_release: IntArray
    rank_tail: IntArray
    #: Times of the present order, of which those before the window and the tails after it are fixed. None: there is
    #: no present order, and everything is inside.
    timing: Timing | None

    @property
    def num_free(self) -> int:
        """Number of ops inside that may change places."""
        return int((self.is_free & (self.place == INSIDE)).sum())


def whole_problem(staged: StagedProblem, times: IntegerTimes, order: Order | None) -> Window:
    """Return the window that holds everything; ``order`` serves as a hint only."""
    classes = (0, 1, 2) if staged.split_backward else (0, 1)
    ops: list[list[Op]] = [[] for _ in range(staged.num_ranks)]
    for stage, rank in enumerate(staged.stage_rank.tolist()):
        ops[rank].extend((stage, kind, m) for kind in classes for m in range(staged.num_microbatches))
    shape = staged.num_stages, 3, staged.num_microbatches
    timing = None
    if order is not None:
        timing = time_order(staged, order, times.duration, times.transfer, times.latency)
    zero = np.zeros(staged.num_ranks, dtype=np.int64)
    return Window(
        staged, times, ops, np.zeros(shape, np.int64), np.ones(shape, np.bool_), zero, zero.copy(), timing
    )


def cut_window(
    staged: StagedProblem,
    times: IntegerTimes,
    order: Order,
    timing: Timing,
    begin: int,
    end: int,
    is_free: npt.NDArray[np.bool_],
) -> Window:
    """Return the window of ops that start at ``begin`` or later, but before ``end``.

    As no op starts before what it waits for, the cuts run along precedences.
    """
    place = np.where(timing.start < begin, BEFORE, np.where(timing.start < end, INSIDE, AFTER))
    if not staged.split_backward:
        place[:, 2] = BEFORE
    ops: list[list[Op]] = []
    release = np.zeros(staged.num_ranks, dtype=np.int64)
    tail = np.zeros(staged.num_ranks, dtype=np.int64)
    for rank in range(staged.num_ranks):
        index = op_indices(order.of_rank(rank), order.num_microbatches)
        own = place[index]
        first, last = np.searchsorted(own, [INSIDE, AFTER])
        if first:
            release[rank] = _at(timing.start, index, first - 1) + times.duration[index[0][first - 1], index[1][first - 1]]
        if last < len(own):
            tail[rank] = _at(timing.tail, index, last)
        ops.append(list(zip(*(part[first:last].tolist() for part in index), strict=True)))
    return Window(staged, times, ops, place, is_free, release, tail, timing)


def op_indices(codes: IntArray, num_microbatches: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return stage, class and microbatch of op codes."""
    slot = codes // NUM_KINDS
    return slot // num_microbatches, CLASS_OF_KIND[codes % NUM_KINDS], slot % num_microbatches


def _at(values: IntArray, index: tuple[IntArray, IntArray, IntArray], position: int) -> int:
    stage, kind, microbatch = (part[position] for part in index)
    return int(values[stage, kind, microbatch])


def op_code(op: Op, staged: StagedProblem) -> int:
    """Return the code of an op (`octoplan_solvers.ops`)."""
    stage, kind, microbatch = op
    if kind == 1:
        kind = BACKWARD_INPUT if staged.split_backward else BACKWARD
    return (stage * staged.num_microbatches + microbatch) * NUM_KINDS + kind


def replace_ops(order: Order, window: Window, sequences: list[list[Op]]) -> Order:
    """Return the order with the window's ops in these sequences."""
    codes = order.ops.copy()
    for rank, sequence in enumerate(sequences):
        own = order.of_rank(rank)
        place = window.place[op_indices(own, order.num_microbatches)]
        first = int(order.rank_begin[rank] + np.searchsorted(place, INSIDE))
        codes[first : first + len(sequence)] = [op_code(op, window.staged) for op in sequence]
    return Order(codes, order.rank_begin, order.num_microbatches)


def sort_by_microbatch(order: Order) -> Order:
    """Rename microbatches so that every stage runs each kind of op in the order of their numbers.

    Microbatches are alike, so the j-th F that a stage starts may be called that of microbatch j, and likewise I, W
    and B. The j-th one starts after j ops of each kind that feeds it have ended and j of their messages have
    arrived, so after the j-th; all times and all bytes stay what they are. So searching such orders is enough.
    """
    codes = order.ops.copy()
    for rank in range(order.num_ranks):
        part = slice(order.rank_begin[rank], order.rank_begin[rank + 1])
        chain = codes[part] // NUM_KINDS // order.num_microbatches * NUM_KINDS + codes[part] % NUM_KINDS
        by_chain = np.argsort(chain, kind="stable")
        grouped = chain[by_chain]
        number = np.arange(len(chain)) - np.searchsorted(grouped, grouped)
        own = np.empty_like(chain)
        own[by_chain] = (grouped // NUM_KINDS * order.num_microbatches + number) * NUM_KINDS + grouped % NUM_KINDS
        codes[part] = own
    return Order(codes, order.rank_begin, order.num_microbatches)
