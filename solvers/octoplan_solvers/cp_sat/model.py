"""Partition and placement by OR-Tools CP-SAT: layers to stages to ranks, minimising a bound of the makespan."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

from octoplan_solvers.cp_sat.constraints import Context, add_constraints
from octoplan_solvers.cp_sat.explain import explain_infeasible
from octoplan_solvers.cp_sat.guards import Guards
from octoplan_solvers.cp_sat.objective import add_objective
from octoplan_solvers.cp_sat.variables import LARGEST_TIME, PlacementModel, TimeUnit, add_variables
from octoplan_solvers.placement_check import assignment_bound
from octoplan_solvers.placement_costs import PlacementCosts
from octoplan_solvers.placement_hint import variable_values
from octoplan_solvers.placement_limits import certain_excess, cut_layers
from octoplan_solvers.placement_start import best_start, take_start
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult, Status
from octoplan_solvers.stopping import stopped_by
from octoplan_solvers.symmetry import canonical

_STATUS: dict[Any, Status] = {
    cp_model.OPTIMAL: "optimal",
    cp_model.FEASIBLE: "feasible",
    cp_model.INFEASIBLE: "infeasible",
    cp_model.UNKNOWN: "unknown",
}
#: Seconds that the reason of infeasibility and the remedy may take, each.
_EXPLAIN_S = 5.0
#: Layers times ranks from which presolve is cut short.
_LARGE = 8000


def solve_placement(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    hint: Assignment | None = None,
    deterministic: bool = False,
    stop: threading.Event | None = None,
    excluded: Sequence[Assignment] = (),
    below_s: float | None = None,
) -> SolverResult:
    """Choose stages and ranks such that the makespan's lower bound is as small as possible.

    Parameters
    ----------
    time_limit_s:
        Seconds of wall-clock time; the best solution and bound so far are returned.
    hint:
        An assignment to start from; None: the best of the regular ones.
    deterministic:
        Count the limit in the solver's deterministic time: with one worker, the same result every time.
    stop:
        Once set, the search ends within a tenth of a second.
    excluded:
        Assignments that are not to be returned, under any naming of interchangeable ranks. Two that differ only in
        cuts between layers of one rank are told apart.
    below_s:
        Look only for assignments whose bound is below these seconds.

    Returns
    -------
    SolverResult
        ``bound_s`` is a lower bound of the makespan of every plan of the problem, solved or not - of those whose
        assignment is not excluded. Infeasible under ``excluded`` or ``below_s``: no other assignment has a bound below.
    """
    started = time.monotonic()
    if certain_excess(problem)[1]:
        return _explained(problem, SolverResult("infeasible", "cp-sat", seed, 0.0), time_limit_s)
    built = build_model(problem, told_apart=bool(excluded))
    start = hint if hint is not None else best_start(problem)[0]
    if start is not None:
        _add_hint(built, problem, canonical(problem, start))
    for assignment in excluded:
        _exclude(built, canonical(problem, assignment))
    if below_s is not None:
        built.model.add(built.variables.makespan <= int(below_s / built.unit.seconds))
    solver = _solver(seed, num_workers, is_large=problem.num_layers * problem.num_ranks > _LARGE)
    if deterministic:
        solver.parameters.max_deterministic_time = time_limit_s
    else:
        solver.parameters.max_time_in_seconds = max(0.0, time_limit_s - (time.monotonic() - started))
    collector = _Collector(built)
    with stopped_by(solver, stop):
        status = _STATUS[solver.solve(built.model, collector)]
    result = _result(status, solver, collector, seed, time.monotonic() - started)
    if excluded or below_s is not None:
        return result
    if status == "infeasible":
        return _explained(problem, result, time_limit_s)
    return take_start(problem, result, start) if status == "unknown" else result


def _explained(problem: PipelineProblem, result: SolverResult, time_limit_s: float) -> SolverResult:
    return explain_infeasible(problem, result, time_limit_s=min(_EXPLAIN_S, max(time_limit_s, 1.0)))


def build_model(problem: PipelineProblem, *, told_apart: bool = False) -> PlacementModel:
    """State the model; ``told_apart``: with every cut between layers of one rank as a decision."""
    model = cp_model.CpModel()
    costs = PlacementCosts.of(problem)
    unit = TimeUnit.of(costs)
    variables = add_variables(model, problem, costs, cut_layers(problem, everywhere=told_apart))
    add_constraints(Context(model, problem, variables, Guards(model)))
    add_objective(model, problem, variables, costs, unit)
    return PlacementModel(model, variables, unit)


def emit_model(problem: PipelineProblem, path: Path | str) -> None:
    """Write the model as the text form of CP-SAT's protocol buffer; its objective is in seconds.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    built = build_model(problem)
    proto = built.model.proto
    proto.objective.scaling_factor = built.unit.seconds
    Path(path).write_text(str(proto), encoding="utf-8")


def _solver(seed: int, num_workers: int, *, is_large: bool) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = num_workers
    # Probing takes seconds on large problems and has not been seen to help; presolve takes most of a minute.
    solver.parameters.cp_model_probing_level = 0
    if is_large:
        solver.parameters.max_presolve_iterations = 1
    return solver


def _add_hint(built: PlacementModel, problem: PipelineProblem, assignment: Assignment) -> None:
    for variable, value in variable_values(built.variables, problem, assignment):
        built.model.add_hint(variable, value)
    # Every coefficient is rounded down, so the model's value of the bound is no larger.
    units = min(assignment_bound(problem, assignment) / built.unit.seconds + 1, LARGEST_TIME)
    built.model.add_hint(built.variables.makespan, int(units))


def _exclude(built: PlacementModel, assignment: Assignment) -> None:
    """At least one layer is elsewhere, or one cut between layers of a rank is otherwise."""
    variables = built.variables
    literals = []
    for (first, end), rank in zip(assignment.boundaries, assignment.ranks, strict=True):
        for layer in range(first, end):
            literals.append(~variables.on[layer][rank])
            cut = variables.cuts.get((layer, rank))
            if cut is None or (layer == first and _rank_before(assignment, first) != rank):
                continue
            literals.append(~cut if layer == first else cut)
    built.model.add_bool_or(literals)


def _rank_before(assignment: Assignment, first: int) -> int | None:
    stages = zip(assignment.boundaries, assignment.ranks, strict=True)
    return next((rank for (_, end), rank in stages if end == first), None)


def _result(
    status: Status, solver: cp_model.CpSolver, collector: _Collector, seed: int, seconds: float
) -> SolverResult:
    solved = status in ("optimal", "feasible")
    scale = collector.unit.seconds
    return SolverResult(
        status=status,
        solver="cp-sat",
        seed=seed,
        seconds=seconds,
        objective_s=solver.objective_value * scale if solved else None,
        bound_s=None if status == "infeasible" else max(solver.best_objective_bound, 0.0) * scale,
        assignment=collector.solutions[-1] if solved else None,
        solutions=tuple(collector.solutions),
        trace=tuple(collector.trace),
    )


class _Collector(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Keeps every improving solution, and the trace."""

    def __init__(self, built: PlacementModel) -> None:
        super().__init__()
        self._variables = built.variables
        self.unit = built.unit
        self.solutions: list[Assignment] = []
        self.trace: list[tuple[float, float, float]] = []

    def on_solution_callback(self) -> None:
        """Called by the solver at every improvement."""
        ranks = [
            next(rank for rank, variable in enumerate(row) if self.boolean_value(variable))
            for row in self._variables.on
        ]
        cuts = {layer for (layer, _), cut in self._variables.cuts.items() if self.boolean_value(cut)}
        self.solutions.append(Assignment.from_layer_ranks(ranks, cuts))
        scale = self.unit.seconds
        self.trace.append((self.wall_time, self.objective_value * scale, self.best_objective_bound * scale))
