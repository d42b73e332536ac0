"""MILP solvers through PuLP: which there are, and one run of each with an honest outcome."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulp

from octoplan_solvers.result import Status



@dataclass(frozen=True, slots=True)
class Outcome:
    """Status and bound (in the objective's unit) of one run; the variables hold the solution."""

    status: Status
    bound: float | None


def available_backends() -> list[str]:
    """Return the names after ``milp:``: highs and cbc first, then whatever else PuLP finds."""
    found = [name for name in pulp.listSolvers(onlyAvailable=True) if name not in _KNOWN]
    own = [name for name, available in (("highs", _has_highs()), ("cbc", _cbc_path())) if available]
    return [*own, *found]


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
    if name == "highs":
        return _run_highs(model, time_limit_s, seed, num_workers, has_start)
    if name == "cbc":
        return _run_cbc(model, time_limit_s, seed, num_workers, has_start)
    return _run_other(name, model, time_limit_s)


#: PuLP's names of the solvers that have names of our own.
_KNOWN = ("HiGHS", "HiGHS_CMD", "PULP_CBC_CMD", "COIN_CMD")


def _has_highs() -> bool:
    return bool(pulp.HiGHS(msg=False).available())


def _cbc_path() -> str | None:
    """Return the CBC that comes with PuLP, or one on the path."""
    for path in (getattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", None), None):
        solver = pulp.COIN_CMD(path=path, msg=False)
        if solver.available():
            return str(solver.path)
    return None


def _run_highs(
    model: pulp.LpProblem, time_limit_s: float, seed: int, num_workers: int, has_start: bool
) -> Outcome:
    import highspy  # comes with the extra `study`

    class StartedHighs(pulp.HiGHS):  # type: ignore[misc]
        """PuLP's HiGHS, which takes no start of its own accord."""

        def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
            if has_start:
                start = highspy.HighsSolution()
                start.col_value = [variable.varValue for variable in lp.variables()]
                lp.solverModel.setSolution(start)
            # Threads are a pool of the whole process: another number than last time needs a new one.
            highspy.Highs.resetGlobalScheduler(True)
            lp.solverModel.run()

    solver = StartedHighs(
        msg=False,
        timeLimit=max(time_limit_s, 1e-3),
        threads=num_workers,
        gapRel=0.0,
        gapAbs=0.0,
        random_seed=seed,
    )
    solver.actualSolve(model)
    inside = model.solverModel
    info, reason = inside.getInfo(), inside.getModelStatus()
    if reason == highspy.HighsModelStatus.kOptimal:
        return Outcome("optimal", float(info.mip_dual_bound))
    if reason in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return Outcome("infeasible", None)  # makespans are not negative, so nothing is unbounded
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Outcome("feasible" if has_solution else "unknown", _finite(float(info.mip_dual_bound)))


def _run_cbc(
    model: pulp.LpProblem, time_limit_s: float, seed: int, num_workers: int, has_start: bool
) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "cbc.log")
        solver = pulp.COIN_CMD(
            path=_cbc_path(),
            msg=False,
            timeLimit=max(time_limit_s, 0.1),
            threads=num_workers,
            gapRel=0.0,
            gapAbs=0.0,
            warmStart=has_start,
            logPath=str(log),
            options=[f"randomSeed {seed + 1}", f"randomCbcSeed {seed + 1}"],
        )
        solver.tmpDir = folder
        solver.actualSolve(model)
        text = log.read_text(encoding="utf-8", errors="replace")
    return _cbc_outcome(model, text)


def _cbc_outcome(model: pulp.LpProblem, log: str) -> Outcome:
    """Read status and bound from CBC's own words: PuLP tells neither a bound nor a timeout from infeasibility."""
    if re.search(r"Result - Problem proven infeasible|Result - Linear relaxation infeasible", log):
        return Outcome("infeasible", None)
    if "Result - Optimal solution found" in log:
        return Outcome("optimal", float(pulp.value(model.objective)))
    if model.sol_status == pulp.LpSolutionInfeasible and "Problem is infeasible" in log:
        return Outcome("infeasible", None)
    bounds: Sequence[str] = re.findall(r"^Lower bound:\s+(\S+)", log, flags=re.MULTILINE)
    bound = _finite(float(bounds[-1])) if bounds else None
    has_solution = model.sol_status in (pulp.LpSolutionIntegerFeasible, pulp.LpSolutionOptimal)
    return Outcome("feasible" if has_solution else "unknown", bound)


def _run_other(name: str, model: pulp.LpProblem, time_limit_s: float) -> Outcome:
    solver: Any = pulp.getSolver(name, msg=False, timeLimit=max(time_limit_s, 0.1))
    solver.actualSolve(model)
    if model.sol_status == pulp.LpSolutionOptimal:
        return Outcome("optimal", float(pulp.value(model.objective)))
    if model.sol_status == pulp.LpSolutionInfeasible:
        return Outcome("infeasible", None)
    # PuLP has no common way to ask for a bound.
    return Outcome("feasible" if model.sol_status == pulp.LpSolutionIntegerFeasible else "unknown", None)


def _finite(bound: float) -> float | None:
    return bound if abs(bound) < 1e30 else None
