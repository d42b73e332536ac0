"""HiGHS through PuLP's translation: silent, with a start and a bound. Imported only where highspy is installed."""

from __future__ import annotations

from typing import Any

import highspy
import pulp

from octoplan_solvers.milp.outcome import Outcome, finite


def run_highs(
    model: pulp.LpProblem, *, time_limit_s: float, seed: int, num_workers: int, has_start: bool
) -> Outcome:
    """Solve a model; the variables hold the solution, and before that the start if there is one."""
    options = {
        "time_limit": max(time_limit_s, 1e-3),
        "threads": num_workers,
        "random_seed": seed,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
    }
    _Translation(options, has_start).actualSolve(model)
    inside = model.solverModel
    info, reason = inside.getInfo(), inside.getModelStatus()
    if reason == highspy.HighsModelStatus.kOptimal:
        return Outcome("optimal", float(info.mip_dual_bound))
    if reason in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return Outcome("infeasible", None)  # makespans are not negative, so nothing is unbounded
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Outcome("feasible" if has_solution else "unknown", finite(float(info.mip_dual_bound)))


class _Silent(highspy.Highs):  # type: ignore[misc]
    """highspy prints a banner in its constructor, where the first callback is set."""

    def enableCallbacks(self) -> Any:  # noqa: N802
        """Turn the output off before anything can print."""
        self.setOptionValue("output_flag", False)
        return super().enableCallbacks()


class _Translation(pulp.HiGHS):  # type: ignore[misc]
    """PuLP's translation of a model, run with our options; of its own accord it takes no start."""

    def __init__(self, options: dict[str, float], has_start: bool) -> None:
        super().__init__(msg=False)
        self._options = options
        self._has_start = has_start

    def createAndConfigureSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
        """Create the solver."""
        lp.solverModel = _Silent()
        lp.solverModel.setOptionValue("output_flag", False)
        for name, value in self._options.items():
            lp.solverModel.setOptionValue(name, value)

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
        """Run the solver."""
        if self._has_start:
            start = highspy.HighsSolution()
            start.col_value = [variable.varValue for variable in lp.variables()]
            lp.solverModel.setSolution(start)
        # Threads are a pool of the whole process: another number than last time needs a new one.
        highspy.Highs.resetGlobalScheduler(True)
        lp.solverModel.run()
