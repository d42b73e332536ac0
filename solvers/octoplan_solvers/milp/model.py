"""Partition and placement as a MILP through PuLP: the model of `octoplan_solvers.cp_sat`, in linear form."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pulp

from octoplan_solvers.milp.backends import run_backend
from octoplan_solvers.milp.constraints import Context, add_constraints
from octoplan_solvers.milp.objective import add_objective
from octoplan_solvers.milp.outcome import Outcome
from octoplan_solvers.milp.variables import Variables, add_variables
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.placement_costs import PlacementCosts
from octoplan_solvers.placement_hint import variable_values
from octoplan_solvers.placement_limits import certain_excess, cut_layers
from octoplan_solvers.placement_start import best_start, take_start
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult, Status
from octoplan_solvers.symmetry import canonical

#: Share by which a solver's bound is lowered: solvers keep their rows and integers within about 1e-6.
_BOUND_SAFETY = 1e-5


@dataclass(frozen=True)
class PlacementModel:
    """The MILP of a problem."""

    model: pulp.LpProblem
    variables: Variables
    scale_s: float


def solve_placement(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    hint: Assignment | None = None,
    backend: str = "highs",
) -> SolverResult:
    """Choose stages and ranks such that the makespan's lower bound is as small as possible.

    Parameters
    ----------
    time_limit_s:
        Seconds of wall-clock time; the best solution so far is returned, with a bound if the solver gives one.
    hint:
        An assignment to start from; None: the best of the regular ones.
    backend:
        ``highs``, ``cbc``, or the name of a solver that PuLP finds (those get no start).

    Raises
    ------
    ValueError
        If there is no such backend.
    """
    started = time.monotonic()
    if certain_excess(problem)[1]:
        return SolverResult("infeasible", f"milp:{backend}", seed, time.monotonic() - started)
    built = build_model(problem)
    start = hint if hint is not None else best_start(problem)[0]
    usable = start is not None and not check_assignment(problem, start)
    if start is not None and usable:
        _set_start(built, problem, canonical(problem, start))
    left = time_limit_s - (time.monotonic() - started)
    outcome = run_backend(
        backend, built.model, time_limit_s=left, seed=seed, num_workers=num_workers, has_start=usable
    )
    result = _result(problem, built, outcome, f"milp:{backend}", seed, time.monotonic() - started)
    return take_start(problem, result, start) if result.status == "unknown" else result


def build_model(problem: PipelineProblem, *, in_seconds: bool = False) -> PlacementModel:
    """State the model, with the objective in seconds or in units of `PlacementCosts.scale_s`."""
    costs = PlacementCosts.of(problem)
    model = pulp.LpProblem("placement", pulp.LpMinimize)
    variables = add_variables(model, problem, costs, cut_layers(problem))
    add_objective(model, problem, variables, costs, in_seconds=in_seconds)
    add_constraints(Context(model, problem, variables))
    return PlacementModel(model, variables, costs.scale_s)


def emit_model(problem: PipelineProblem, path: Path | str) -> None:
    """Write the model as ``.mps`` or ``.lp``, by the name's ending; its objective is in seconds.

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file cannot be written.
    """
    target = Path(path)
    model = build_model(problem, in_seconds=True).model
    if target.suffix == ".mps":
        model.writeMPS(str(target))
    elif target.suffix == ".lp":
        model.writeLP(str(target))
    else:
        raise ValueError(f"a MILP is written as .mps or .lp, not {target.name!r}")


def _set_start(built: PlacementModel, problem: PipelineProblem, assignment: Assignment) -> None:
    for variable, value in variable_values(built.variables, problem, assignment):
        variable.setInitialValue(int(value))
    built.variables.makespan.setInitialValue(assignment_bound(problem, assignment) / built.scale_s)
    for variable in built.model.variables():
        if variable.varValue is None:  # the common number of stages
            variable.setInitialValue(assignment.num_stages // problem.num_ranks)


def _result(
    problem: PipelineProblem, built: PlacementModel, outcome: Outcome, name: str, seed: int, seconds: float
) -> SolverResult:
    assignment = _read(problem, built.variables) if outcome.status in ("optimal", "feasible") else None
    # What a solver calls a solution counts only if the independent check agrees.
    if assignment is not None and check_assignment(problem, assignment):
        assignment = None
    status: Status = outcome.status
    if status in ("optimal", "feasible") and assignment is None:
        status = "unknown"
    bound_s = None
    if outcome.bound is not None:
        bound_s = max(outcome.bound, 0.0) * built.scale_s * (1 - _BOUND_SAFETY)
    return SolverResult(
        status=status,
        solver=name,
        seed=seed,
        seconds=seconds,
        objective_s=None if assignment is None else float(built.variables.makespan.varValue) * built.scale_s,
        bound_s=bound_s,
        assignment=assignment,
        solutions=() if assignment is None else (assignment,),
    )


def _read(problem: PipelineProblem, variables: Variables) -> Assignment | None:
    """Return the solution that the variables hold, or None if they hold none."""
    values = [[variable.varValue for variable in row] for row in variables.on]
    if any(value is None for row in values for value in row):
        return None
    ranks = [row.index(max(row)) for row in values]
    cuts = {layer for (layer, _), cut in variables.cuts.items() if cut.varValue > 0.5}
    return Assignment.from_layer_ranks(ranks, cuts)
