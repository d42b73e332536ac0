"""Every solver on every problem of the bank: same optimum, same verdict, and every answer checked independently."""

from __future__ import annotations

from functools import cache

import pytest

from octoplan_solvers.brute_force import solve_placement as brute_force
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.registry import list_solvers, solve_assignment
from octoplan_solvers.result import SolverResult
from tests.solvers.placement.bank import BANK, Case

#: Share by which two solvers' values may differ: they stop within their own tolerances.
AGREEMENT = 1e-5
EXACT_SOLVERS = tuple(
    info for info in list_solvers() if info.objective == "makespan bound" and info.name != "brute-force"
)
BACKENDS = [
    pytest.param(
        info.name,
        marks=pytest.mark.skipif(not info.available, reason=f"{info.name} is not installed"),
        id=info.name,
    )
    for info in EXACT_SOLVERS
]


@cache
def _brute_force(name: str) -> SolverResult:
    return brute_force(_case(name).problem, time_limit_s=60)


def _case(name: str) -> Case:
    return next(case for case in BANK if case.name == name)


def test_the_bank_is_large_and_named_once() -> None:
    names = [case.name for case in BANK]
    assert len(names) == len(set(names)) >= 40
    assert sum(not case.feasible for case in BANK) >= 8


@pytest.mark.parametrize("case", BANK, ids=lambda case: case.name)
def test_brute_force_confirms_what_the_bank_says(case: Case) -> None:
    assert _brute_force(case.name).status == ("optimal" if case.feasible else "infeasible")


@pytest.mark.parametrize("solver", BACKENDS)
@pytest.mark.parametrize("case", BANK, ids=lambda case: case.name)
def test_solvers_agree(case: Case, solver: str) -> None:
    result = solve_assignment(case.problem, solver=solver, time_limit_s=60, num_workers=2)
    expected = _brute_force(case.name)
    assert result.status == expected.status
    if not case.feasible:
        assert (result.assignment, result.objective_s, result.bound_s) == (None, None, None)
        assert any(str(case.conflict) in name for name in result.conflict), result.conflict
        assert result.remedy
        return
    assert result.assignment is not None
    assert result.bound_s is not None
    assert check_assignment(case.problem, result.assignment) == []
    optimum = expected.objective_s
    assert result.objective_s == pytest.approx(optimum, rel=AGREEMENT)
    assert assignment_bound(case.problem, result.assignment) == pytest.approx(optimum, rel=AGREEMENT)
    assert result.bound_s == pytest.approx(optimum, rel=2 * AGREEMENT)
    # A bound may be rounded down, never up.
    assert result.bound_s <= optimum * (1 + 1e-9)
