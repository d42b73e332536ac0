"""MILP solvers through PuLP: which there are, and one run of any of them."""

from __future__ import annotations

from typing import Any

import pulp

from octoplan_solvers.milp.cbc import cbc_path, run_cbc
from octoplan_solvers.milp.outcome import Outcome

#: PuLP's names of the solvers that have names of our own.
_OWN_NAMES = ("HiGHS", "HiGHS_CMD", "PULP_CBC_CMD", "COIN_CMD")


def available_backends() -> list[str]:
    """Return the names after ``milp:``: highs and cbc first, then whatever else PuLP finds."""
    own = {"highs": pulp.HiGHS(msg=False).available(), "cbc": cbc_path() is not None}
    others = [name for name in pulp.listSolvers(onlyAvailable=True) if name not in _OWN_NAMES]
    return [*(name for name, available in own.items() if available), *others]


def run_backend(
    name: str, model: pulp.LpProblem, *, time_limit_s: float, seed: int, num_workers: int, has_start: bool
) -> Outcome:
    """Solve a model.

    Parameters
    ----------
    has_start:
        The variables hold a solution to start from.

    Raises
    ------
    ValueError
        If PuLP finds no solver of this name.
    """
    if name not in available_backends():
        raise ValueError(f"no MILP solver {name!r}; installed are {', '.join(available_backends())}")
    options: dict[str, Any] = {
        "time_limit_s": time_limit_s,
        "seed": seed,
        "num_workers": num_workers,
        "has_start": has_start,
    }
    if name == "highs":
        from octoplan_solvers.milp.highs import run_highs  # highspy is an extra

        return run_highs(model, **options)
    if name == "cbc":
        return run_cbc(model, **options)
    return _run_other(name, model, time_limit_s)


def _run_other(name: str, model: pulp.LpProblem, time_limit_s: float) -> Outcome:
    """Any other solver gets a time limit alone, and PuLP has no common way to ask for a bound."""
    solver = pulp.getSolver(name, msg=False, timeLimit=max(time_limit_s, 0.1))
    solver.actualSolve(model)
    if model.sol_status == pulp.LpSolutionOptimal:
        return Outcome("optimal", float(pulp.value(model.objective)))
    if model.sol_status == pulp.LpSolutionInfeasible:
        return Outcome("infeasible", None)
    has_solution = model.sol_status == pulp.LpSolutionIntegerFeasible
    return Outcome("feasible" if has_solution else "unknown", None)
