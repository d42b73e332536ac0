"""The list of all assignments, held against a plain enumeration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octoplan_solvers import assignment_list
from octoplan_solvers.assignment_list import list_assignments
from octoplan_solvers.placement_check import assignment_bound
from octoplan_solvers.problem import PipelineProblem
from tests.solvers.placement.bank import BANK
from tests.solvers.placement.listing import every_assignment, name_swaps, renamed
from tests.solvers.placement.problems import make_problem, node_links
from tests.tiny_problems import random_tiny_problem

#: What brute force enumerates in a moment.
SMALL = [
    case
    for case in BANK
    if case.problem.num_ranks ** (case.problem.max_stages_per_rank * case.problem.num_ranks) < 1000
]
TWO_NODES = make_problem(
    (0.2, 0.5, 0.3, 0.7, 0.4), 4, latency_s=node_links(2, 2, 0.1, 0.5), max_stages=2, microbatches=3
)


def tiny(seed: int) -> PipelineProblem:
    problem = random_tiny_problem(seed, max_layers=5)
    return problem.problem(np.array(problem.limits))


def require_complete(problem: PipelineProblem) -> None:
    """Every assignment that fits is there exactly once, up to names of interchangeable ranks, and nothing else."""
    listed = list_assignments(problem)
    assert listed is not None
    rows = [listed.assignment(row) for row in range(len(listed))]
    allowed, names = every_assignment(problem), name_swaps(problem, groups_of_equals=True)
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(allowed)
    found = set(rows)
    for assignment in allowed:
        assert len({renamed(assignment, name) for name in names} & found) == 1
    require_bounds(problem, listed.bound_s.tolist(), [assignment_bound(problem, row) for row in rows])


def require_bounds(problem: PipelineProblem, bounds: list[float], expected: list[float]) -> None:
    """Each carries the bound that is computed for it alone, the smallest first."""
    assert bounds == sorted(bounds)
    np.testing.assert_allclose(bounds, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_bank_is_listed_completely(case: object) -> None:
    require_complete(case.problem)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(40))
def test_random_problems_are_listed_completely(seed: int) -> None:
    """With memory limits, costs of zero, skips and uneven links."""
    require_complete(tiny(seed))


def test_swaps_of_whole_nodes_are_listed_twice() -> None:
    """Only names of single equal ranks are dropped: it is complete all the same."""
    require_complete(TWO_NODES)


def test_ranks_with_limits_in_flight_are_told_apart() -> None:
    problem = make_problem((0.2, 0.5, 0.3), 2)
    limited = replace(problem, constraints=replace(problem.constraints, max_in_flight=((0, 1),)))
    free, told_apart = list_assignments(problem), list_assignments(limited)
    assert free is not None
    assert told_apart is not None
    assert len(told_apart) == 2 * len(free) == 4
    require_complete(limited)


def test_fewer_layers_than_ranks_leave_nothing() -> None:
    listed = list_assignments(make_problem((0.2, 0.5), 3))
    assert listed is not None
    assert len(listed) == 0


def test_a_list_that_would_be_too_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_assignments(make_problem((0.1,) * 40, 8, max_stages=4)) is None
    problem = make_problem((0.2, 0.5, 0.3, 0.4), 2, max_stages=2, overhead_s=(0.0, 0.1))
    listed = list_assignments(problem)
    assert listed is not None
    monkeypatch.setattr(assignment_list, "MOST_ASSIGNMENTS", len(listed))
    assert list_assignments(problem) is not None
    monkeypatch.setattr(assignment_list, "MOST_ASSIGNMENTS", len(listed) - 1)
    assert list_assignments(problem) is None
