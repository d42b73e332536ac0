"""The dynamic program against every partition in the given order."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan_solvers.chain_dp import solve_placement
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.partition_dp import balanced_boundaries
from octoplan_solvers.placement_check import check_assignment
from octoplan_solvers.problem import Assignment, PipelineProblem
from tests.solvers.placement.problems import make_problem


def _heaviest(problem: PipelineProblem, assignment: Assignment) -> float:
    stages = zip(assignment.boundaries, assignment.ranks, strict=True)
    return max(
        float(problem.rank_layer_time_s[rank, first:end].sum() + 2 * problem.op_overhead_s[rank])
        for (first, end), rank in stages
    )


def _partitions(problem: PipelineProblem, ranks: tuple[int, ...]) -> list[Assignment]:
    inner = combinations(range(1, problem.num_layers), len(ranks) - 1)
    return [Assignment(tuple(pairwise((0, *cuts, problem.num_layers))), ranks) for cuts in inner]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_is_the_best_of_all_partitions(data: st.DataObject) -> None:
    times = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.7, 2.0]), min_size=4, max_size=7))
    limit = data.draw(st.sampled_from([np.inf, 3.0, 4.0]))
    constraints = data.draw(
        st.sampled_from(
            [
                PlacementConstraints(),
                PlacementConstraints(pins=((1, 0),)),
                PlacementConstraints(same_stage=((1, 4),)),
                PlacementConstraints(boundary_after=(0,)),
            ]
        )
    )
    problem = replace(
        make_problem(
            (times, times[::-1]), 3, rank_type=(0, 1, 0), overhead_s=(0.0, 0.1, 0.2), state=1.0, limit=limit
        ),
        constraints=constraints,
    )
    ranks = data.draw(st.permutations(range(3)).map(tuple))
    allowed = [one for one in _partitions(problem, ranks) if not check_assignment(problem, one)]
    hint = Assignment.from_sizes([1, 1, problem.num_layers - 2], ranks)
    result = solve_placement(problem, time_limit_s=1, hint=hint)
    if not allowed:
        assert result.status == "unknown"
        return
    assert result.status == "optimal"
    assert result.assignment in allowed
    best = min(_heaviest(problem, one) for one in allowed)
    assert _heaviest(problem, result.assignment) == pytest.approx(best, abs=1e-12)
    assert result.objective_s == pytest.approx(best * problem.num_microbatches)


def test_it_is_the_balanced_partition() -> None:
    problem = make_problem((0.3, 0.1, 0.9, 0.2, 0.4, 0.4, 0.1), 3, overhead_s=0.05)
    result = solve_placement(problem, time_limit_s=1)
    assert result.assignment is not None
    assert list(result.assignment.boundaries) == balanced_boundaries(problem, [0, 1, 2])


def test_a_bound_only_where_the_order_is_no_choice() -> None:
    equal, unequal = make_problem((1.0, 2.0), 2), make_problem((1.0, 2.0), 2, overhead_s=(0.0, 0.5))
    assert solve_placement(equal, time_limit_s=1).bound_s == pytest.approx(4 * 2.0)
    assert solve_placement(unequal, time_limit_s=1).bound_s is None
    assert solve_placement(make_problem((1.0, 2.0), 2, max_stages=2), time_limit_s=1).bound_s is None


def test_infeasible_only_where_the_order_is_no_choice() -> None:
    state = (3.0, 1.0, 1.0)
    equal = make_problem((1.0,) * 3, 2, state=state, limit=2.5)
    assert solve_placement(equal, time_limit_s=1).status == "infeasible"
    small_first = make_problem((1.0,) * 3, 2, state=state, limit=(2.0, 3.0))
    assert solve_placement(small_first, time_limit_s=1).status == "unknown"
