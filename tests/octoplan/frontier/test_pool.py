"""`Pool` against its definition, and `Axis` as ``--memory-limit`` reads it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.frontier.axis import Axis
from octoplan.frontier.pool import Pool, PoolPlan
from octoplan.memory_limit import MemoryLimit
from octoplan_solvers.bounds import Bound
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment

NOTHING = Order(np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64), 1)
WHOLE = Assignment(((0, 1),), (0,))
VALUES = st.floats(0.01, 100.0)


def pool_of(points: list[tuple[float, float]]) -> Pool:
    return Pool([PoolPlan(memory, makespan, WHOLE, NOTHING, "octoplan") for memory, makespan in points])


@settings(max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12))
def test_the_frontier_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    found = [(plan.memory, plan.makespan_s) for plan in pool_of(points).frontier()]
    assert set(found) <= set(points)
    for memory, makespan in points:
        beaten = [other for other in found if other[0] <= memory and other[1] <= makespan * (1 + 1e-8)]
        assert beaten, "every plan is on the frontier, or something there is as good in both"
    for one in found:
        assert not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in points)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8),
    st.lists(VALUES, max_size=4),
)
def test_the_next_limit_lies_between_neighbours_and_was_not_tried(
    points: list[tuple[float, float]], tried: list[float]
) -> None:
    pool = pool_of(points)
    limit = pool.widest_gap(tried)
    if limit is not None:
        assert limit not in tried
        memories = [plan.memory for plan in pool.frontier()]
        assert memories[0] < limit < memories[-1]


def test_the_widest_gap_is_where_throughput_and_memory_differ_most() -> None:
    assert pool_of([(1.0, 10.0), (4.0, 5.0), (5.0, 4.9)]).widest_gap([]) == pytest.approx(2.0)
    assert pool_of([(1.0, 10.0), (4.0, 5.0), (5.0, 4.9)]).widest_gap([2.0]) == pytest.approx(8**0.5)
    assert pool_of([(1.0, 10.0)]).widest_gap([]) is None
    assert pool_of([(1.0, 10.0), (1.001, 5.0)]).widest_gap([]) is None


def test_a_bound_holds_for_every_tighter_limit() -> None:
    pool = Pool(bounds=[(1.0, Bound("a", 9.0)), (2.0, Bound("b", 5.0)), (3.0, Bound("c", 6.0))])
    assert pool.bound_at(0.5) == Bound("a", 9.0)
    assert pool.bound_at(2.0) == Bound("c", 6.0)
    assert pool.bound_at(4.0) is None


@settings(max_examples=100)
@given(st.sampled_from(["share", "bytes", "1f1b"]), st.floats(1e-3, 5.0))
def test_rounded_limits_allow_what_they_stand_for(kind: str, value: float) -> None:
    axis = Axis(kind, np.ones(1))  # type: ignore[arg-type]
    value = value * 1e10 if kind == "bytes" else value
    rounded = axis.rounded_up(value)
    assert rounded >= value * (1 - 1e-12)
    assert rounded <= value + (1.0 if kind == "bytes" else 1e-4)
    parsed = MemoryLimit.parse(axis.text(rounded))
    assert parsed.kind == kind
    assert parsed.value == pytest.approx(rounded, rel=1e-12)
    assert axis.rounded_up(rounded) == pytest.approx(rounded, rel=1e-12)


def test_no_limit_has_a_text() -> None:
    assert Axis("share", np.ones(1)).text(float("inf")) == "none"
