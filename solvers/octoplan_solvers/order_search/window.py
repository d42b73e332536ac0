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

from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.timing import CLASS_OF_KIND, Timing, time_order
from octoplan_solvers.staged import StagedProblem

BEFORE, INSIDE, AFTER = -1, 0, 1

#: An op: stage, class (0: F, 1: I or B, 2: W), microbatch.
Op = tuple[int, int, int]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """What a model decides: the ops of a window, and the circumstances that the rest of the order sets."""

    staged: StagedProblem
    times: IntegerTimes
    #: Ops of each rank, in their present order; a W that a fused backward may yet get comes last.
    ops: list[list[Op]]
    #: ``(S, 3, M)``: whether each op comes before, inside or after.
    place: IntArray
    #: ``(S, 3, M)``: may change places; the others keep their order among themselves.
    is_free: BoolArray
    #: ``(S, M)``: whether a backward is one B now, and whether the model may choose.
    is_fused: BoolArray
    may_choose: BoolArray
    #: ``(R,)`` end of the rank's last op before, and the tail of its first op after.
    rank_release: IntArray
    rank_tail: IntArray
    #: Times of the present order, of which those before the window and the tails after it are fixed. None: there is
    #: no present order, and everything is inside.
    timing: Timing | None

    @property
    def is_whole(self) -> bool:
        """Whether nothing lies outside."""
        return bool((self.place == INSIDE).all())

    @property
    def num_free(self) -> int:
        """Number of ops inside that may change places."""
        return int((self.is_free & (self.place == INSIDE)).sum())


def whole_problem(
    staged: StagedProblem, times: IntegerTimes, order: Order | None, *, waits: bool = True
) -> Window:
    """Return the window that holds everything; ``order`` serves as a hint only, ``waits`` as in `fusing_can_help`."""
    shape = staged.num_stages, 3, staged.num_microbatches
    classes = (0, 1, 2) if staged.split_backward else (0, 1)
    ops: list[list[Op]] = [[] for _ in range(staged.num_ranks)]
    for stage, rank in enumerate(staged.stage_rank.tolist()):
        ops[rank].extend((stage, kind, m) for kind in classes for m in range(staged.num_microbatches))
    may_choose = np.repeat(fusing_can_help(staged, waits=waits)[:, None], shape[2], axis=1)
    is_fused = np.full((shape[0], shape[2]), not staged.split_backward)
    if order is not None and staged.split_backward:
        is_fused = fused_backwards(order, staged.num_stages) & may_choose
    return Window(
        staged=staged,
        times=times,
        ops=ops,
        place=np.full(shape, INSIDE, dtype=np.int64),
        is_free=np.ones(shape, dtype=np.bool_),
        is_fused=is_fused,
        may_choose=may_choose,
        rank_release=np.zeros(staged.num_ranks, dtype=np.int64),
        rank_tail=np.zeros(staged.num_ranks, dtype=np.int64),
        timing=None if order is None else time_integers(staged, times, order),
    )


def cut_window(
    staged: StagedProblem,
    times: IntegerTimes,
    order: Order,
    timing: Timing,
    begin: int,
    end: int,
    is_free: BoolArray,
) -> Window:
    """Return the window of ops that start at ``begin`` or later, but before ``end``.

    As no op starts before what it waits for, the cuts run along precedences.
    """
    place = np.where(timing.start < begin, BEFORE, np.where(timing.start < end, INSIDE, AFTER))
    is_fused = fused_backwards(order, staged.num_stages)
    place[:, 2] = np.where(is_fused, place[:, 1], place[:, 2])
    inside = is_free[:, 1:] & (place[:, 1:] == INSIDE)
    may_choose = fusing_can_help(staged)[:, None] & inside.all(axis=1)
    ops: list[list[Op]] = []
    release = np.zeros(staged.num_ranks, dtype=np.int64)
    tail = np.zeros(staged.num_ranks, dtype=np.int64)
    for rank in range(staged.num_ranks):
        codes = order.of_rank(rank)
        index = op_indices(codes, order.num_microbatches)
        first, last = np.searchsorted(place[index], [INSIDE, AFTER])
        if first:
            before = tuple(int(part[first - 1]) for part in index)
            release[rank] = timing.start[before] + times.duration[before[0], codes[first - 1] % NUM_KINDS]
        if last < len(codes):
            tail[rank] = timing.tail[tuple(int(part[last]) for part in index)]
        own = list(zip(*(part[first:last].tolist() for part in index), strict=True))
        own += [(s, 2, m) for s, k, m in own if k == 1 and is_fused[s, m] and may_choose[s, m]]
        ops.append(own)
    return Window(staged, times, ops, place, is_free, is_fused, may_choose, release, tail, timing)


def time_integers(staged: StagedProblem, times: IntegerTimes, order: Order) -> Timing:
    """Time an order in whole units."""
    return time_order(staged, order, times.duration, times.transfer, times.latency)


def fusing_can_help(staged: StagedProblem, *, waits: bool = True) -> BoolArray:
    """Return ``(S,)`` whether one B may be worth more than I and W, in a split job.

    I with W right behind it frees the same bytes no later and hands its gradient over earlier. So B can only help
    where it saves an op's overhead or the stash of W, or where a gradient that arrives early takes up scarce memory.

    Parameters
    ----------
    waits:
        Ops may wait, as in a superset of the simulations. Where they may not, a gradient that comes early hurries what
        follows, and may crowd any rank.
    """
    if not staged.split_backward:
        return np.zeros(staged.num_stages, dtype=np.bool_)
    apart = staged.duration_s[:, BACKWARD_INPUT] + staged.duration_s[:, BACKWARD_WEIGHT]
    helps: BoolArray = (staged.duration_s[:, BACKWARD] < apart * (1 - 1e-12)) | (staged.stash_bytes > 0)
    receiver_is_limited = np.isfinite(staged.memory_limit_bytes[staged.stage_rank[staged.edge_source]])
    counts = staged.edge_crosses & (staged.edge_bytes > 0) & receiver_is_limited
    if not waits and staged.memory_is_limited:
        counts = staged.edge_crosses
    helps[staged.edge_destination[counts]] = True
    return helps


def fused_backwards(order: Order, num_stages: int) -> BoolArray:
    """Return ``(S, M)`` whether a backward is one B."""
    fused = np.zeros((num_stages, order.num_microbatches), dtype=np.bool_)
    slots = order.ops[order.ops % NUM_KINDS == BACKWARD] // NUM_KINDS
    fused[slots // order.num_microbatches, slots % order.num_microbatches] = True
    return fused


def op_indices(codes: IntArray, num_microbatches: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return stage, class and microbatch of op codes."""
    slot = codes // NUM_KINDS
    return slot // num_microbatches, CLASS_OF_KIND[codes % NUM_KINDS], slot % num_microbatches


def replace_inside(order: Order, window: Window, sequences: list[list[int]]) -> Order:
    """Return the order with the window's ops replaced by these op codes, rank by rank."""
    parts = []
    for rank, sequence in enumerate(sequences):
        own = order.of_rank(rank)
        place = window.place[op_indices(own, order.num_microbatches)]
        parts += [own[place == BEFORE], np.array(sequence, dtype=np.int64), own[place == AFTER]]
    lengths = [sum(len(part) for part in parts[3 * rank : 3 * rank + 3]) for rank in range(len(sequences))]
    begin = np.cumsum([0, *lengths]).astype(np.int64)
    return Order(np.concatenate(parts), begin, order.num_microbatches)


def sort_by_microbatch(order: Order) -> Order:
    """Rename microbatches so that every stage runs F, its backwards, and W in the order of their numbers.

    Microbatches are alike, so the k-th F that a stage starts may be called that of microbatch k, likewise the k-th I
    or B; and the k-th W is that of the k-th I. The k-th op of a kind starts after k ops of each kind that feeds it
    have ended, and k of their messages have arrived, so after the k-th one; and what is held depends on how many ops
    have run. So at the same times the renamed schedule is right as well: where ops may start late, it is enough to
    search such orders. Started as early as possible, the renamed order may even be shorter; but a tensor may then
    arrive earlier, and be held for longer.
    """
    codes = order.ops.copy()
    for rank in range(order.num_ranks):
        part = slice(order.rank_begin[rank], order.rank_begin[rank + 1])
        stages, classes, _ = op_indices(codes[part], order.num_microbatches)
        kinds = codes[part] % NUM_KINDS
        number = _count_within(stages * 3 + classes)
        for stage in np.unique(stages):
            own = stages == stage
            number[own & (kinds == BACKWARD_WEIGHT)] = number[own & (kinds == BACKWARD_INPUT)]
        codes[part] = (stages * order.num_microbatches + number) * NUM_KINDS + kinds
    return Order(codes, order.rank_begin, order.num_microbatches)


def _count_within(groups: IntArray) -> IntArray:
    """Return how many earlier entries are in the same group."""
    by_group = np.argsort(groups, kind="stable")
    ordered = groups[by_group]
    number = np.empty_like(groups)
    number[by_group] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return number
