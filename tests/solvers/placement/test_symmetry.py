"""Interchangeable ranks and the one naming of an assignment."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from octoplan_solvers.brute_force import all_assignments
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.placement_check import assignment_bound
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.symmetry import canonical, interchangeable_groups, interchangeable_ranks
from tests.solvers.placement.problems import make_problem, node_links

EQUAL = make_problem((1.0,) * 5, 3, max_stages=2)
TWO_NODES = make_problem((1.0,) * 5, 4, latency_s=node_links(2, 2, 0.1, 0.5))


def _groups(problem: PipelineProblem) -> tuple[list[list[int]], list[list[int]]]:
    groups = interchangeable_ranks(problem)
    return groups, interchangeable_groups(problem, groups)


def test_equal_ranks_are_one_group() -> None:
    assert _groups(EQUAL) == ([[0, 1, 2]], [[0]])


def test_nodes_are_groups_that_can_swap() -> None:
    assert _groups(TWO_NODES) == ([[0, 1], [2, 3]], [[0, 1]])


def test_nodes_of_unequal_size_cannot_swap() -> None:
    latency = np.array([[0.1 if (one < 2) == (other < 2) else 0.5 for other in range(5)] for one in range(5)])
    assert _groups(make_problem((1.0,) * 5, 5, latency_s=latency)) == ([[0, 1], [2, 3, 4]], [[0], [1]])


@pytest.mark.parametrize(
    "changed",
    [
        {"op_overhead_s": np.array([0.0, 0.1, 0.0])},
        {"memory_limit_bytes": np.array([1.0, 9.0, 1.0])},
        {"latency_s": np.array([[0, 0.1, 0], [0.1, 0, 0.1], [0, 0.1, 0]])},
        {"constraints": PlacementConstraints(pins=((0, 1),))},
        {"constraints": PlacementConstraints(max_in_flight=((1, 2),))},
    ],
)
def test_what_tells_a_rank_apart(changed: dict[str, object]) -> None:
    assert interchangeable_ranks(replace(EQUAL, **changed)) == [[0, 2], [1]]  # type: ignore[arg-type]


@pytest.mark.parametrize("problem", [EQUAL, TWO_NODES], ids=["equal", "two-nodes"])
def test_a_canonical_name_stands_for_a_class(problem: PipelineProblem) -> None:
    names: dict[Assignment, Assignment] = {}
    for assignment in all_assignments(problem):
        name = canonical(problem, assignment)
        names[assignment] = name
        assert canonical(problem, name) == name
        assert assignment_bound(problem, name) == pytest.approx(assignment_bound(problem, assignment))
    symmetries = 6 if problem is EQUAL else 8
    assert len(names) == symmetries * len(set(names.values()))


def test_ranks_appear_in_order() -> None:
    for ranks in permutations(range(3)):
        assert canonical(EQUAL, Assignment.from_sizes([1, 2, 2], ranks)).ranks == (0, 1, 2)
