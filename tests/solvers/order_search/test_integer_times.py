"""Integer times: exact where the numbers allow it, and never above the truth where they do not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan_solvers.order_search.integer_times import IntegerTimes, RankMemory
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import equal_sizes_problem, one_layer_per_stage


def problem_with(times: list[float], latency: float) -> StagedProblem:
    return equal_sizes_problem(
        len(times), 2, 2, forward=times, backward_input=times, backward_weight=times, latency=latency
    )


def test_decimal_times_have_a_common_unit() -> None:
    staged = problem_with([0.3, 0.1 + 0.2], 0.15)
    times = IntegerTimes.of(staged, 10.0)
    assert times.exact
    assert times.unit_s == Fraction(15, 100)
    assert times.duration[:, 0].tolist() == [2, 2]
    assert times.latency[0].tolist() == [1, 1]


def test_the_unit_is_as_coarse_as_it_can_be() -> None:
    times = IntegerTimes.of(problem_with([200.0, 600.0], 0.0), 1e6)
    assert (times.exact, times.unit_s) == (True, 200)


def test_microseconds_are_exact_too() -> None:
    times = IntegerTimes.of(problem_with([0.012345, 0.000117], 1e-6), 3.0)
    assert (times.exact, times.unit_s) == (True, Fraction(1, 10**6))


@given(st.lists(st.floats(1e-6, 10.0), min_size=2, max_size=3), st.floats(0.0, 1.0))
def test_rounding_keeps_bounds_valid(durations: list[float], latency: float) -> None:
    staged = problem_with(durations, latency)
    horizon = 10 * sum(durations)
    times = IntegerTimes.of(staged, horizon)
    unit = float(times.unit_s)
    low, high = times.duration * unit, times.duration_ceil * unit
    assert (low <= staged.duration_s * (1 + 1e-9)).all()
    assert (high >= staged.duration_s * (1 - 1e-9)).all()
    assert (times.delay_ceil >= times.transfer + times.latency).all()
    # What might be a whole number of units, but for rounding errors, gets a unit on either side.
    assert (times.duration_ceil - times.duration <= 2).all()


@pytest.mark.parametrize("makespan", [1.0, 3.7, 100.0])
def test_the_largest_makespan_below_another(makespan: float) -> None:
    exact = IntegerTimes.of(problem_with([0.1, 0.2], 0.1), 100.0)
    assert exact.largest_below(makespan) == round(makespan * 10) - 1
    rounded = IntegerTimes.of(problem_with([0.1, 2**0.5], 0.1), 100.0)
    assert not rounded.exact
    # A schedule that is shorter by next to nothing may have the same number of units.
    assert rounded.largest_below(makespan) == int(makespan / float(rounded.unit_s))


def test_bytes_are_exact_where_they_have_a_common_divisor() -> None:
    staged = one_layer_per_stage(
        [0, 1],
        2,
        times=np.ones((3, 2)),
        latency=np.zeros((2, 2)),
        limit=np.array([10.0 * 2**30, 10.0 * 2**30]),
        activation=np.array([3.0 * 2**30, 5.0 * 2**30]),
        retained=np.array([2.0 * 2**30, 5.0 * 2**30]),
    )
    memory = RankMemory.of(staged, 0)
    assert (memory.exact, memory.capacity, memory.units(3.0 * 2**30)) == (True, 10, 3)
    odd = RankMemory.of(staged.with_limit(np.pi * 1e9 * 2**20), 0)
    assert odd.units(3.0 * 2**30) * odd.unit <= 3.0 * 2**30
    assert odd.capacity * odd.unit <= np.pi * 1e9 * 2**20 * (1 + 1e-9)
