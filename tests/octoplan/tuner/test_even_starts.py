"""Evened starts: the same placement, every layer once, and a busiest rank that is never busier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octoplan.problem_builder import build_problem
from octoplan.tuner.arrays import problem_arrays
from octoplan.tuner.even_starts import even_starts
from octoplan.tuner.starts import starting_assignments
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.problem import Assignment, PipelineProblem
from tests.builders import make_cluster, make_layer, make_model


def _problem(seed: int, *, split: bool = True) -> PipelineProblem:
    random = np.random.default_rng(seed)
    layers = [make_layer(f"l{index}", *random.uniform(0.5, 2.0, size=3)) for index in range(24)]
    return build_problem(
        make_model(layers), make_cluster(4), num_microbatches=8, split_backward=split, max_stages_per_rank=3
    )


def _busiest(problem: PipelineProblem, assignment: Assignment) -> float:
    """Return the largest load per microbatch: work, and the share of waiting before the rank's first stage."""
    forward, both = problem.forward_s[0], problem.layer_time_s[0]
    loads = []
    for rank in range(problem.num_ranks):
        own = [ends for ends, at in zip(assignment.boundaries, assignment.ranks, strict=True) if at == rank]
        waits = (forward if problem.split_backward else both)[: own[0][0]].sum() / problem.num_microbatches
        loads.append(sum(both[first:end].sum() for first, end in own) + waits)
    return float(max(loads))


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_loads_are_never_less_even(seed: int, split: bool) -> None:
    problem = _problem(seed, split=split)
    arrays = problem_arrays(problem)
    improved = 0
    for start in starting_assignments(problem):
        for even in even_starts(problem, arrays, [start], seed=seed):
            assert even.ranks == start.ranks
            assert [first for first, _ in even.boundaries[1:]] == [end for _, end in even.boundaries[:-1]]
            assert (even.boundaries[0][0], even.boundaries[-1][1]) == (0, problem.num_layers)
            assert all(first < end for first, end in even.boundaries)
            assert _busiest(problem, even) < _busiest(problem, start)
            improved += 1
    assert improved


def test_the_same_seed_gives_the_same_starts() -> None:
    problem = _problem(0)
    starts = starting_assignments(problem)
    arrays = problem_arrays(problem)
    once, again = (list(even_starts(problem, arrays, starts, seed=3)) for _ in range(2))
    assert once == again
    assert len(set(once)) == len(once)
    assert not set(once) & set(starts)


def test_constraints_are_kept() -> None:
    problem = _problem(1)
    with_boundary = replace(problem, constraints=PlacementConstraints(boundary_after=(4,)))
    starts = starting_assignments(problem)
    found = list(even_starts(with_boundary, problem_arrays(with_boundary), starts, seed=0))
    assert found
    for even in found:
        assert 5 in [end for _, end in even.boundaries]
