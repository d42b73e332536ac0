"""A layer in two halves: the same stages cost the same, and constraints mean the same."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest

from octoplan.explain.split_layer import LayerSplit
from octoplan.problem_builder import build_problem
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged
from tests.builders import make_cluster, uniform_model
from tests.random_problems import numpy_random, random_cluster, random_model


@pytest.mark.parametrize("seed", range(40))
def test_stages_that_hold_both_halves_cost_what_they_did(seed: int) -> None:
    random = Random(seed)
    num_ranks, num_layers = random.randint(1, 3), random.randint(4, 8)
    cluster = random_cluster(random, num_ranks, is_exact=False)
    model = random_model(random, num_layers, list(cluster.device_types), is_exact=False)
    whole = build_problem(model, cluster, num_microbatches=3, max_stages_per_rank=4)
    split = LayerSplit(random.randrange(num_layers))
    halves = split.problem(whole)
    assert (
        halves.num_layers == num_layers + 1 == len(split.model(model).layers) == len(set(halves.layer_names))
    )
    ends = sorted(random.sample(range(1, num_layers), random.randint(num_ranks, 4) - 1))
    ranks = numpy_random(random).permutation(np.arange(len(ends) + 1) % num_ranks).tolist()
    assignment = Assignment(tuple(zip([0, *ends], [*ends, num_layers], strict=True)), tuple(ranks))
    before, after = build_staged(whole, assignment), build_staged(halves, split.assignment(assignment))
    for field in fields(before):
        if field.name in ("assignment", "workspace_bytes"):
            continue
        one, other = getattr(before, field.name), getattr(after, field.name)
        if one is None:  # nothing is limited
            assert other is None, field.name
            continue
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert (after.workspace_bytes <= before.workspace_bytes).all()


def test_between_the_halves_passes_what_the_whole_was_given() -> None:
    random = Random(3)
    cluster = random_cluster(random, 2, is_exact=True)
    model = random_model(random, 5, list(cluster.device_types), is_exact=True)
    whole = build_problem(model, cluster, num_microbatches=1)
    halves = LayerSplit(4).problem(whole)
    assert halves.output_bytes.tolist() == [
        *whole.output_bytes[:4],
        whole.output_bytes[3],
        whole.output_bytes[4],
    ]


ALL_KINDS = PlacementConstraints(
    pins=((2, 1), (4, 0)),
    same_rank=((0, 4), (1, 2)),
    different_rank=((0, 2), (1, 3)),
    same_stage=((1, 3), (3, 5)),
    boundary_after=(2, 4),
)


@pytest.mark.parametrize("layer", range(6))
def test_constraints_hold_of_both_halves_as_of_the_whole(layer: int) -> None:
    """Over all placements of stages that keep the halves together, the same ones are allowed."""
    split = LayerSplit(layer)
    moved = split.problem(_six_layers()).constraints
    random = np.random.default_rng(layer)
    kept = 0
    for _ in range(2000):
        sizes = np.diff([0, *sorted(random.choice(np.arange(1, 6), random.integers(1, 5), replace=False)), 6])
        assignment = Assignment.from_sizes(sizes.tolist(), random.integers(0, 2, len(sizes)).tolist())
        is_kept = not ALL_KINDS.violations(assignment)
        assert is_kept == (not moved.violations(split.assignment(assignment)))
        kept += is_kept
    assert kept > 0


def _six_layers() -> PipelineProblem:
    problem = build_problem(uniform_model(6), make_cluster(2), num_microbatches=1, max_stages_per_rank=6)
    return replace(problem, constraints=ALL_KINDS)
