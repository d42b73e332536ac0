"""The balanced partition against enumeration of every partition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest

from octoplan.problem_builder import build_problem
from octoplan_solvers.partition_dp import balanced_boundaries, minimise_heaviest_stage
from tests.builders import make_cluster, make_layer, make_model


def partitions(num_layers: int, num_stages: int) -> Iterator[list[tuple[int, int]]]:
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        yield list(pairwise([0, *cuts, num_layers]))


def heaviest(costs: np.ndarray, fixed: np.ndarray, boundaries: list[tuple[int, int]]) -> tuple[float, float]:
    stages = [
        float(fixed[stage] + costs[stage, first:end].sum()) for stage, (first, end) in enumerate(boundaries)
    ]
    return max(stages), sum(cost * cost for cost in stages)


@pytest.mark.parametrize("seed", range(40))
def test_minimises_the_heaviest_stage_then_the_squares(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_layers = int(random.integers(1, 9))
    num_stages = int(random.integers(1, num_layers + 1))
    # Small integers, so that equal sums are equal floats; unequal rows are unequal devices.
    costs = random.integers(0, 6, size=(num_stages, num_layers)).astype(float)
    fixed = random.integers(0, 3, size=num_stages).astype(float)
    found = minimise_heaviest_stage(costs, fixed)
    assert found[0][0] == 0
    assert found[-1][1] == num_layers
    assert all(first < end for first, end in found)
    best = min(heaviest(costs, fixed, boundaries) for boundaries in partitions(num_layers, num_stages))
    assert heaviest(costs, fixed, found) == best


def test_more_stages_than_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="3 stages need at least as many layers, not 2"):
        minimise_heaviest_stage(np.ones((3, 2)))


def test_a_heavy_head_stands_alone() -> None:
    layers = [make_layer(f"l{index}") for index in range(6)]
    model = make_model([*layers, make_layer("head", 4.0, 4.0, 1.0)])
    problem = build_problem(model, make_cluster(3), num_microbatches=4)
    assert balanced_boundaries(problem, [0, 1, 2]) == [(0, 3), (3, 6), (6, 7)]
