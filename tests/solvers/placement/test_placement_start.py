"""Starts: regular placements, and what they give way to under tight memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.placement_limits import certain_excess
from octoplan_solvers.placement_start import best_start
from octoplan_solvers.problem import Assignment
from tests.solvers.placement.problems import make_problem


def test_without_limits_it_is_the_regular_placement_with_the_smallest_bound() -> None:
    problem = make_problem((1.0,) * 12, 3, max_stages=4, microbatches=2)
    start, allowed = best_start(problem)
    assert allowed
    assert start is not None
    one_stage_each = Assignment.from_sizes([4, 4, 4], [0, 1, 2])
    assert assignment_bound(problem, start) <= assignment_bound(problem, one_stage_each)
    assert start.num_stages > 3


def test_tight_memory_decides_the_cuts() -> None:
    # Even in time is two and four layers, even in memory is four and two.
    problem = make_problem((3.0, 3.0, 1.5, 1.5, 1.5, 1.5), 2, state=(1, 1, 1, 1, 2, 2), limit=4.0)
    start, allowed = best_start(problem)
    assert allowed
    assert start == Assignment.from_sizes([4, 2], [0, 1])


def test_a_start_that_is_not_allowed_is_said_to_be_so() -> None:
    pinned = replace(make_problem((1.0,) * 4, 2), constraints=PlacementConstraints(pins=((0, 1),)))
    start, allowed = best_start(pinned)
    assert not allowed
    assert start is not None
    assert check_assignment(pinned, start)
    assert best_start(make_problem((1.0,), 2)) == (None, False)


@pytest.mark.parametrize(
    ("state", "limit", "factor"),
    [
        ((2.0, 2.0, 2.0, 2.0), (4.0, 3.0), 8 / 7),
        ((1.0, 9.0, 1.0, 1.0), (6.0, 6.0), 1.5),
        ((2.0, 2.0, 2.0, 2.0), (4.0, 4.0), 1.0),
    ],
)
def test_arithmetic_alone_rules_out(
    state: tuple[float, ...], limit: tuple[float, ...], factor: float
) -> None:
    problem = make_problem((1.0,) * 4, 2, state=state, limit=limit)
    found, names = certain_excess(problem)
    assert found == pytest.approx(factor)
    assert len(names) == (2 if factor > 1 else 0)
    one_unlimited = make_problem((1.0,) * 4, 2, state=state, limit=(limit[0], float("inf")))
    assert certain_excess(one_unlimited) == (1.0, ())


def test_activations_alone_may_be_too_many() -> None:
    problem = make_problem((1.0,) * 4, 2, activation=1.0, dynamic_limit_bytes=1.6)
    found, names = certain_excess(problem)
    assert found == pytest.approx(4 / 3.2)
    assert names[0] == "activation limit of rank 0 (2 bytes)"
