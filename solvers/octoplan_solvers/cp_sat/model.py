"""Partition and placement by OR-Tools CP-SAT: layers to stages to ranks, minimising a bound of the makespan."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ortools.sat.python import cp_model

from octoplan_solvers.cp_sat.constraints import add_constraints
from octoplan_solvers.cp_sat.objective import add_objective
from octoplan_solvers.cp_sat.variables import TimeUnit, Variables, add_variables
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult, Status

_STATUS: dict[Any, Status] = {
    cp_model.OPTIMAL: "optimal",
    cp_model.FEASIBLE: "feasible",
    cp_model.INFEASIBLE: "infeasible",
    cp_model.UNKNOWN: "unknown",
}


def solve_placement(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    hint: Assignment | None = None,
    deterministic: bool = False,
    stop: threading.Event | None = None,
) -> SolverResult:
    """Choose stages and ranks such that the makespan's lower bound is as small as possible.

    Parameters
    ----------
    time_limit_s:
        Seconds of wall-clock time; the best solution and bound so far are returned.
    hint:
        An assignment to start from.
    deterministic:
        Count the limit in the solver's deterministic time: with one worker, the same result every time.
    stop:
        Once set, the search ends within a tenth of a second.

    Returns
    -------
    SolverResult
        ``bound_s`` is a lower bound of the makespan of every plan of the problem, solved or not.
    """
    model = cp_model.CpModel()
    unit = TimeUnit.of(problem)
    variables = add_variables(model, problem)
    add_constraints(model, problem, variables)
    add_objective(model, problem, variables, unit)
    if hint is not None:
        _add_hint(model, variables, hint)
    solver = cp_model.CpSolver()
    if deterministic:
        solver.parameters.max_deterministic_time = time_limit_s
    else:
        solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.catch_sigint_signal = False
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = num_workers
    collector = _Collector(variables, unit)
    start = time.monotonic()
    with _stopper(solver, stop):
        status = _STATUS[solver.solve(model, collector)]
    seconds = time.monotonic() - start
    solved = status in ("optimal", "feasible")
    bound = None if status == "infeasible" else max(solver.best_objective_bound, 0.0) * unit.seconds
    return SolverResult(
        status=status,
        solver="cp-sat",
        seed=seed,
        seconds=seconds,
        objective_s=solver.objective_value * unit.seconds if solved else None,
        bound_s=bound,
        assignment=collector.solutions[-1] if solved else None,
        solutions=tuple(collector.solutions),
        trace=tuple(collector.trace),
    )


@contextmanager
def _stopper(solver: cp_model.CpSolver, stop: threading.Event | None) -> Iterator[None]:
    """Stop the search as soon as the event is set."""
    if stop is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            if stop.is_set():
                solver.stop_search()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _add_hint(model: cp_model.CpModel, variables: Variables, hint: Assignment) -> None:
    for (first, end), own in zip(hint.boundaries, hint.ranks, strict=True):
        for layer in range(first, end):
            for rank, variable in enumerate(variables.on[layer]):
                model.add_hint(variable, rank == own)


class _Collector(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Keeps every improving solution, and the trace."""

    def __init__(self, variables: Variables, unit: TimeUnit) -> None:
        super().__init__()
        self._variables = variables
        self._unit = unit
        self.solutions: list[Assignment] = []
        self.trace: list[tuple[float, float, float]] = []

    def on_solution_callback(self) -> None:
        """Called by the solver at every improvement."""
        ranks = [
            next(rank for rank, variable in enumerate(row) if self.boolean_value(variable))
            for row in self._variables.on
        ]
        self.solutions.append(assignment_from_layer_ranks(ranks))
        scale = self._unit.seconds
        self.trace.append((self.wall_time, self.objective_value * scale, self.best_objective_bound * scale))


def assignment_from_layer_ranks(ranks: Sequence[int]) -> Assignment:
    """Cut wherever the rank changes."""
    starts = [layer for layer in range(len(ranks)) if layer == 0 or ranks[layer] != ranks[layer - 1]]
    ends = [*starts[1:], len(ranks)]
    return Assignment(tuple(zip(starts, ends, strict=True)), tuple(ranks[start] for start in starts))
