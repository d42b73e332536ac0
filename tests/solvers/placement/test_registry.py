"""Names of solvers, one way to call them, and the files that they write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from octoplan_solvers.brute_force import solve_placement as brute_force
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.registry import emit_model, get_solver, list_solvers, solve_assignment
from tests.solvers.placement.problems import make_problem

PROBLEM = make_problem((0.2, 0.5, 0.3, 0.7), 2)


def test_the_contract_names_these_solvers() -> None:
    names = [info.name for info in list_solvers()]
    assert names[:3] == ["cp-sat", "milp:highs", "milp:cbc"]
    assert names[-2:] == ["dp", "brute-force"]
    assert all(name.startswith("milp:") for name in names[3:-2])


@pytest.mark.parametrize(
    "info", [info for info in list_solvers() if info.available], ids=lambda info: info.name
)
def test_every_installed_solver_answers_by_its_name(info: object) -> None:
    name = info.name  # type: ignore[attr-defined]
    result = get_solver(name)(PROBLEM, time_limit_s=30, seed=1, num_workers=1, hint=None)
    assert result.status == "optimal"
    assert (result.solver, result.seed) == (name, 1)


def test_an_unknown_name_lists_what_there_is() -> None:
    for name in ("gurobi", "milp:nonesuch", "milp:", ""):
        with pytest.raises(ValueError, match=f"no solver '{name}'; installed are cp-sat, .*brute-force"):
            get_solver(name)


@pytest.mark.parametrize("solver", ["brute-force", "dp", "cp-sat"])
def test_infeasible_problems_are_explained_for_every_solver(solver: str) -> None:
    constraints = PlacementConstraints(different_rank=((0, 1, 2),))
    problem = replace(make_problem((1.0,) * 4, 2, state=3.0, limit=5.0), constraints=constraints)
    result = solve_assignment(problem, solver=solver, time_limit_s=30)
    assert result.status == "infeasible"
    assert result.conflict
    assert result.remedy


def test_brute_force_out_of_time_is_honest() -> None:
    large = make_problem((1.0,) * 30, 4, max_stages=2)
    result = brute_force(large, time_limit_s=0.05)
    assert result.status == "feasible"
    assert result.bound_s is None
    assert brute_force(large, time_limit_s=0.0).status == "unknown"


@pytest.mark.parametrize("name", ["model.mps", "model.lp", "model.pb.txt"])
def test_models_are_written_by_their_ending(name: str, tmp_path: Path) -> None:
    emit_model(PROBLEM, tmp_path / name)
    text = (tmp_path / name).read_text()
    assert "makespan" in text
    assert {"mps": "ROWS", "lp": "Minimize", "txt": "variables {"}[name.rsplit(".", 1)[1]] in text


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.mps, \.lp, \.pb\.txt, not 'model\.txt'"):
        emit_model(PROBLEM, tmp_path / "model.txt")
