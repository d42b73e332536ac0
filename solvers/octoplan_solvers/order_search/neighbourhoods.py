"""Neighbourhoods of an order: which ops may move, around its worst bubbles, while the rest stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octoplan_solvers.ops import NUM_KINDS, FloatArray, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.timing import Timing
from octoplan_solvers.order_search.window import Window, cut_window, op_indices
from octoplan_solvers.staged import StagedProblem

#: All ops of a stretch of time; those of some ranks in a longer stretch; those of some microbatches in one.
KINDS = ("time", "rank", "microbatch")
#: A stretch holds at most so many times as many ops as may move.
_MAX_STRETCH = 4


@dataclass(frozen=True)
class Schedule:
    """An order with its integer times."""

    staged: StagedProblem
    times: IntegerTimes
    order: Order
    timing: Timing


def draw_window(schedule: Schedule, kind: str, num_free: int, random: np.random.Generator) -> Window:
    """Return a window with about ``num_free`` ops that may move, near a bubble drawn by its length."""
    start = _starts(schedule)
    instant, rank = _draw_bubble(schedule, start, random)
    shape = schedule.timing.start.shape
    if kind == "time":
        begin, end = _stretch(start, instant, num_free)
        return _cut(schedule, begin, end, np.ones(shape, dtype=np.bool_))
    is_free = np.zeros(shape, dtype=np.bool_)
    if kind == "rank":
        ranks = _some_ranks(schedule.staged, rank, random)
        is_free[np.isin(schedule.staged.stage_rank, ranks)] = True
        stretch = num_free * schedule.staged.num_ranks // len(ranks)
    else:
        stretch = _MAX_STRETCH * num_free
    begin, end = _stretch(start, instant, min(stretch, _MAX_STRETCH * num_free))
    if kind == "microbatch":
        inside = (schedule.timing.start >= begin) & (schedule.timing.start < end)
        is_free[:, :, _some_microbatches(inside, num_free, random)] = True
    return _cut(schedule, begin, end, is_free)


def _cut(schedule: Schedule, begin: int, end: int, is_free: np.ndarray) -> Window:
    return cut_window(schedule.staged, schedule.times, schedule.order, schedule.timing, begin, end, is_free)


def _starts(schedule: Schedule) -> IntArray:
    """Return ``(N,)`` start of every op, in the order of the op array."""
    starts: IntArray = schedule.timing.start[op_indices(schedule.order.ops, schedule.order.num_microbatches)]
    return starts


def _draw_bubble(schedule: Schedule, start: IntArray, random: np.random.Generator) -> tuple[int, int]:
    """Return the end of an idle interval and its rank, drawn by length; any op if nothing idles."""
    order = schedule.order
    stage = order.ops // NUM_KINDS // order.num_microbatches
    end = start + schedule.times.duration[stage, order.ops % NUM_KINDS]
    idle: FloatArray = (start - np.concatenate([[0], end[:-1]])).astype(np.float64)
    first = order.rank_begin[:-1][np.diff(order.rank_begin) > 0]
    idle[first] = start[first]
    total = idle.sum()
    weights = idle / total if total > 0 else np.full(len(idle), 1 / len(idle))
    index = int(random.choice(len(idle), p=weights))
    return int(start[index]), int(np.searchsorted(order.rank_begin, index, side="right") - 1)


def _stretch(start: IntArray, instant: int, num_ops: int) -> tuple[int, int]:
    """Return begin and end of a stretch of time around an instant in which about so many ops start."""
    ordered = np.sort(start)
    first = int(np.searchsorted(ordered, instant)) - num_ops // 2
    first = max(0, min(first, len(ordered) - num_ops))
    last = first + num_ops
    end = int(ordered[last]) if last < len(ordered) else int(ordered[-1]) + 1
    return int(ordered[first]), max(end, int(ordered[first]) + 1)


def _some_ranks(staged: StagedProblem, rank: int, random: np.random.Generator) -> list[int]:
    """Return a rank and one that it exchanges tensors with."""
    others = np.unique(staged.pairs[staged.pairs[:, 0] == rank, 1])
    return [rank, int(random.choice(others))] if len(others) else [rank]


def _some_microbatches(inside: np.ndarray, num_free: int, random: np.random.Generator) -> IntArray:
    """Draw microbatches until so many of their ops are inside."""
    count = inside.sum(axis=(0, 1))
    drawn = random.permutation(np.flatnonzero(count))
    enough = int(np.searchsorted(np.cumsum(count[drawn]), num_free)) + 1
    return drawn[:enough]
