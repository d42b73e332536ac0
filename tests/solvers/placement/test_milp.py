"""MILP backends: exported models, honest outcomes under a time limit, no chatter."""

from __future__ import annotations

from pathlib import Path

import highspy
import numpy as np
import pulp
import pytest

from octoplan_solvers.milp import available_backends, emit_model, solve_placement
from octoplan_solvers.milp.backends import run_backend
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.problem import Assignment
from tests.solvers.placement.bank import BANK
from tests.solvers.placement.problems import make_problem

RANDOM = np.random.default_rng(5)
#: Far from solved in a second.
LARGE = make_problem(RANDOM.uniform(0.5, 1.5, 40), 6, max_stages=4, microbatches=12, latency_s=0.01)
BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(name not in available_backends(), reason=f"no {name}"))
    for name in ("highs", "cbc")
]
EXPORTED = ("two-ranks-interleaved", "everything", "memory-tight", "skips-slow", "exactly-three")


@pytest.mark.parametrize("suffix", ["mps", "lp"])
@pytest.mark.parametrize("name", EXPORTED)
def test_highs_alone_finds_the_same_optimum(name: str, suffix: str, tmp_path: Path) -> None:
    problem = next(case.problem for case in BANK if case.name == name)
    path = tmp_path / f"model.{suffix}"
    emit_model(problem, path)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(path))
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    inside = solve_placement(problem, time_limit_s=60).objective_s
    assert highs.getObjectiveValue() == pytest.approx(inside, rel=1e-5)


def test_an_infeasible_model_is_infeasible_outside_too(tmp_path: Path) -> None:
    problem = next(case.problem for case in BANK if case.name == "memory-too-small")
    emit_model(problem, tmp_path / "model.mps")
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(tmp_path / "model.mps"))
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible


def test_only_two_endings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.mps or \.lp, not 'model\.txt'"):
        emit_model(LARGE, tmp_path / "model.txt")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("limit_s", [0.0, 1.0])
def test_a_timeout_is_not_a_verdict(backend: str, limit_s: float) -> None:
    result = solve_placement(LARGE, time_limit_s=limit_s, backend=backend)
    assert result.status == "feasible"
    assert result.solver == f"milp:{backend}"
    assert result.assignment is not None
    assert check_assignment(LARGE, result.assignment) == []
    own = assignment_bound(LARGE, result.assignment)
    assert result.objective_s == pytest.approx(own, rel=1e-5)
    assert result.bound_s is None or 0 <= result.bound_s <= own


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_timeout_without_a_solution_is_unknown(backend: str) -> None:
    # No regular placement is allowed, so there is no start to fall back on.
    sizes = RANDOM.uniform(0.5, 1.5, 40)
    tight = make_problem(sizes, 6, max_stages=6, state=sizes, limit=sizes.sum() / 6 * 1.0005, microbatches=12)
    result = solve_placement(tight, time_limit_s=0.2, backend=backend)
    assert result.status in ("unknown", "feasible")
    assert (result.assignment is None) == (result.status == "unknown")
    assert (result.objective_s is None) == (result.status == "unknown")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_start_is_used(backend: str) -> None:
    hint = Assignment.from_sizes([7, 7, 7, 7, 6, 6], [5, 4, 3, 2, 1, 0])
    result = solve_placement(LARGE, time_limit_s=1.0, hint=hint, backend=backend)
    assert result.objective_s is not None
    assert result.objective_s <= assignment_bound(LARGE, hint) * (1 + 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_solvers_print_nothing(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    problem = make_problem((0.2, 0.5, 0.3), 2)
    assert solve_placement(problem, time_limit_s=30, backend=backend).status == "optimal"
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_an_absent_solver_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no MILP solver 'nonesuch'; installed are .*highs"):
        run_backend("nonesuch", pulp.LpProblem(), time_limit_s=1, seed=0, num_workers=1, has_start=False)
