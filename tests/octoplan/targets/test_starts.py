"""Starts under constraints: the lightest heaviest stage among all partitions that keep pins and boundaries."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from octoplan.problem_builder import build_problem
from octoplan.targets.starts import balanced_start, with_placements
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.problem import Assignment, PipelineProblem
from tests.octoplan.exports.samples import block_model, pair


def problem_with(seed: int) -> PipelineProblem:
    """Return 8 layers on 2 ranks with random pins and boundaries."""
    random = np.random.default_rng(seed)
    problem = build_problem(block_model(6, seed=seed), pair(2), num_microbatches=2, max_stages_per_rank=2)
    pins = tuple((int(layer), int(random.integers(2))) for layer in random.choice(8, size=2, replace=False))
    first = int(random.integers(6))
    constraints = PlacementConstraints(
        pins=pins if random.random() < 0.7 else (),
        same_stage=((first, first + 3),) if random.random() < 0.5 else (),
        boundary_after=(int(random.integers(7)),) if random.random() < 0.4 else (),
    )
    return replace(problem, constraints=constraints)


def heaviest_s(problem: PipelineProblem, assignment: Assignment) -> float:
    times = problem.rank_layer_time_s
    stages = zip(assignment.boundaries, assignment.ranks, strict=True)
    return max(float(times[rank, first:end].sum()) for (first, end), rank in stages)


@pytest.mark.parametrize("ranks", [(0, 1), (0, 1, 0, 1), (0, 1, 1, 0)])
@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_best_of_all_partitions(seed: int, ranks: tuple[int, ...]) -> None:
    problem = problem_with(seed)
    every = [
        Assignment.from_sizes(np.diff([0, *cuts, 8]).tolist(), ranks)
        for cuts in combinations(range(1, 8), len(ranks) - 1)
    ]
    allowed = [one for one in every if not problem.constraints.violations(one)]
    found = balanced_start(problem, ranks)
    if not allowed:
        assert found is None
        return
    assert found is not None
    assert not problem.constraints.violations(found)
    best = min(heaviest_s(problem, one) for one in allowed)
    assert heaviest_s(problem, found) == pytest.approx(best)


def test_given_starts_are_kept_and_placements_without_one_get_theirs() -> None:
    problem = problem_with(0)
    problem = replace(problem, constraints=PlacementConstraints())
    given = Assignment.from_sizes([1, 7], [0, 1])
    elsewhere = Assignment.from_sizes([4, 4], [1, 0])
    found = with_placements(problem, [given, elsewhere], [(0, 1), (0, 1, 0, 1)])
    assert found[0] == given
    assert [one.ranks for one in found] == [(0, 1), (0, 1, 0, 1)]


def test_placements_that_relations_rule_out_get_none() -> None:
    problem = problem_with(0)
    problem = replace(problem, constraints=PlacementConstraints(same_rank=((0, 7),)))
    assert with_placements(problem, [], [(0, 1)]) == []
    assert [one.ranks for one in with_placements(problem, [], [(0, 1, 1, 0)])] == [(0, 1, 1, 0)]
