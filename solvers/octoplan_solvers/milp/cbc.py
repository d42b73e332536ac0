"""CBC through PuLP, with the bound that its log tells."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pulp

from octoplan_solvers.milp.outcome import Outcome, finite


def cbc_path() -> str | None:
    """Return the CBC that comes with PuLP, or one on the path; None if there is neither."""
    for path in (getattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", None), None):
        solver = pulp.COIN_CMD(path=path, msg=False)
        if solver.available():
            return str(solver.path)
    return None


def run_cbc(
    model: pulp.LpProblem, *, time_limit_s: float, seed: int, num_workers: int, has_start: bool
) -> Outcome:
    """Solve a model; the variables hold the solution, and before that the start if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "cbc.log")
        solver = pulp.COIN_CMD(
            path=cbc_path(),
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
        try:
            solver.actualSolve(model)
        except pulp.PulpSolverError:
            return Outcome("unknown", None)  # CBC has been seen to crash under limits of a tenth of a second
        return _outcome(model, log.read_text(encoding="utf-8", errors="replace"))


def _outcome(model: pulp.LpProblem, log: str) -> Outcome:
    """Read status and bound from CBC's own words: PuLP keeps no bound."""
    if "Result - Optimal solution found" in log:
        return Outcome("optimal", float(pulp.value(model.objective)))
    if model.status == pulp.LpStatusInfeasible and "Stopped on" not in log:
        return Outcome("infeasible", None)
    bounds = re.findall(r"^Lower bound:\s+(\S+)", log, flags=re.MULTILINE)
    has_solution = model.sol_status in (pulp.LpSolutionIntegerFeasible, pulp.LpSolutionOptimal)
    return Outcome("feasible" if has_solution else "unknown", finite(float(bounds[-1])) if bounds else None)
