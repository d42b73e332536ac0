"""Microbatches in flight, counted op by op."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan_solvers.in_flight import keeps_in_flight_limits, most_in_flight
from octoplan_solvers.order import Order
from tests.octoplan.simulator.cases import random_case
from tests.solvers.order_search.problems import equal_sizes_problem


def counted(order: Order) -> list[int]:
    """Count what has had an op by now, and has one now or later."""
    most = []
    for ops in order.to_lists():
        names = [m for _, _, m in ops]
        most.append(max((len({*names[: now + 1]} & {*names[now:]}) for now in range(len(names))), default=0))
    return most


@given(st.integers(0, 2**32))
def test_any_order_is_counted_right(seed: int) -> None:
    order = random_case(seed).simulation.schedule.order
    assert most_in_flight(order).tolist() == counted(order)


@given(st.integers(0, 2**32))
def test_a_limit_holds_on_every_rank(seed: int) -> None:
    case, random = random_case(seed), Random(seed)
    order, staged = case.simulation.schedule.order, case.job.staged()
    limits = [random.randint(1, staged.num_microbatches) for _ in range(staged.num_ranks)]
    kept = all(most <= limit for most, limit in zip(counted(order), limits, strict=True))
    assert keeps_in_flight_limits(replace(staged, max_in_flight=np.array(limits)), order) == kept
    assert keeps_in_flight_limits(replace(staged, max_in_flight=None), order)


@pytest.mark.parametrize(
    ("ops", "most"),
    [
        ([(0, "F", 0), (0, "B", 0), (0, "F", 1), (0, "B", 1)], 1),
        ([(0, "F", 0), (0, "F", 1), (0, "B", 0), (0, "B", 1)], 2),
        ([(0, "F", 0), (0, "I", 0), (0, "F", 1), (0, "W", 0), (0, "B", 1)], 2),
        ([(0, "F", 0), (0, "F", 1), (0, "B", 1), (0, "F", 2), (0, "B", 2), (0, "B", 0)], 2),
        ([], 0),
    ],
)
def test_known_counts(ops: list[tuple[int, str, int]], most: int) -> None:
    """From the first F to the last op, a W included; another one may come once that has ended."""
    order = Order.from_lists([ops], 3)
    assert most_in_flight(order).tolist() == [most]
    staged = equal_sizes_problem(1, 3, np.inf)
    assert keeps_in_flight_limits(replace(staged, max_in_flight=np.array([max(most, 1)])), order)
    assert keeps_in_flight_limits(replace(staged, max_in_flight=np.array([1])), order) == (most <= 1)
