"""Benders decomposition with exact orders: proved optima of small problems, and honest bounds when stopped."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from octoplan.problem_builder import build_problem
from octoplan.proof import is_small, prove
from octoplan.tuner import Budget, Pricer, search, starting_assignments
from octoplan_solvers.benders import BendersResult, Price, solve_by_benders
from octoplan_solvers.brute_force import solve_placement as enumerate_placements
from octoplan_solvers.placement_check import assignment_bound
from octoplan_solvers.problem import Assignment, PipelineProblem
from tests import exhaustive
from tests.builders import make_cluster, make_layer, make_model


def small_problem(seed: int) -> PipelineProblem:
    """Return a chain of integer times on two ranks."""
    random = np.random.default_rng(seed)
    layers = [make_layer(f"l{index}", *random.integers(1, 5, size=3).tolist()) for index in range(4)]
    cluster = make_cluster(2, latency_s=0.5, bandwidth=1e12)
    return build_problem(make_model(layers), cluster, num_microbatches=2, max_stages_per_rank=2)


@pytest.mark.parametrize("seed", range(6))
def test_with_the_bound_as_price_it_finds_what_enumeration_finds(seed: int) -> None:
    """Where an assignment costs exactly what the master says of it, the first solution is already proved."""
    problem = small_problem(seed)
    priced: list[Assignment] = []

    def price(assignment: Assignment, beat_s: float, effort: int) -> Price:
        priced.append(assignment)
        bound = assignment_bound(problem, assignment)
        return Price(bound, bound)

    result = solve_by_benders(problem, price, time_limit_s=60)
    expected = enumerate_placements(problem, time_limit_s=60).objective_s
    assert result.status == "optimal"
    assert result.makespan_s == pytest.approx(expected, rel=1e-6)
    assert result.num_priced == len(priced)
    assert len(set(priced)) == len(priced)


@pytest.mark.parametrize("seed", range(4))
def test_a_dearer_price_makes_it_look_further(seed: int) -> None:
    """Prices are noise above the bound; the best of all assignments must come out, and bounds only rise."""
    problem = small_problem(seed)

    def makespan(assignment: Assignment) -> float:
        noise = np.random.default_rng(abs(hash((assignment.boundaries, assignment.ranks))) % 2**32).random()
        return assignment_bound(problem, assignment) * (1 + 0.1 * noise)

    seen: dict[Assignment, float] = {}

    def price(assignment: Assignment, beat_s: float, effort: int) -> Price:
        seen[assignment] = makespan(assignment)
        return Price(seen[assignment], seen[assignment])

    result = solve_by_benders(problem, price, time_limit_s=120)
    assert result.status == "optimal"
    assert result.makespan_s == min(seen.values())
    assert_monotone(result)


def assert_monotone(result: BendersResult) -> None:
    for (_, incumbent, bound), (_, later_incumbent, later_bound) in pairwise(result.trace):
        assert later_incumbent <= incumbent
        assert later_bound >= bound


def test_nothing_fits() -> None:
    problem = small_problem(0)
    result = solve_by_benders(
        problem, lambda assignment, beat_s, effort: Price(math.inf, math.inf), time_limit_s=120
    )
    assert result.status == "infeasible"
    assert result.makespan_s is None


def test_stopped_early_it_is_feasible_with_a_valid_bound() -> None:
    problem = small_problem(1)
    result = solve_by_benders(
        problem,
        lambda assignment, beat_s, effort: Price(1000.0, assignment_bound(problem, assignment)),
        time_limit_s=60,
        max_priced=2,
    )
    assert result.status == "feasible"
    assert result.num_priced == 2
    assert result.bound_s <= 1000.0


@pytest.mark.parametrize("seed", range(3))
def test_the_proved_plan_is_the_true_optimum(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    layers = [make_layer(f"l{index}", *random.integers(1, 5, size=3).tolist()) for index in range(3)]
    model, cluster = make_model(layers), make_cluster(2, latency_s=0.5, bandwidth=1e12)
    problem = build_problem(model, cluster, num_microbatches=2, max_stages_per_rank=2)
    assert is_small(problem)
    start = search(Pricer(problem), starting_assignments(problem), Budget(0.0, 200), seed=0)
    plan, bound = prove(problem, start, time_limit_s=90, seed=0)
    optimum = exhaustive.optimum(
        model,
        cluster,
        num_microbatches=2,
        backward="split",
        max_stages_per_device=2,
        memory_limit_bytes=None,
    )
    assert plan is not None
    assert plan.makespan_s == pytest.approx(optimum, rel=1e-9)
    assert bound.seconds == pytest.approx(optimum, rel=1e-6)
    assert bound.seconds <= plan.makespan_s
