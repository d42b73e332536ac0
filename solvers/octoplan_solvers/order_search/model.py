"""The order model as a whole: build it, run CP-SAT, read orders from its solutions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, encode
from octoplan_solvers.order_search.constraints import Scope, add_constraints
from octoplan_solvers.order_search.variables import Variables, add_variables, producer
from octoplan_solvers.order_search.window import Op, Window
from octoplan_solvers.result import Status
from octoplan_solvers.stopping import stopped_by

_STATUS: dict[Any, Status] = {
    cp_model.OPTIMAL: "optimal",
    cp_model.FEASIBLE: "feasible",
    cp_model.INFEASIBLE: "infeasible",
    cp_model.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How long CP-SAT may search, and with what.

    Parameters
    ----------
    seconds:
        Wall-clock time, or CP-SAT's deterministic time.
    deterministic:
        Count deterministic time: with one worker and the same seed, the same result every time.
    """

    seconds: float
    seed: int = 0
    num_workers: int = 2
    deterministic: bool = False
    stop: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What CP-SAT said about the model's own makespan, in whole units."""

    status: Status
    #: No solution has a smaller makespan; None if there is no solution.
    bound: int | None
    #: Op codes of the window on each rank in the best solution.
    sequences: list[list[int]] | None


#: Called at every solution, with the sequences, messages in their order if any has to queue, and the bound so far.
OnSolution = Callable[[list[list[int]], list[int], int], None]


def solve_window(
    window: Window,
    *,
    largest_makespan: int,
    smallest_makespan: int = 0,
    effort: Effort,
    scope: Scope = "superset",
    hint: bool = True,
    on_solution: OnSolution = lambda sequences, messages, bound: None,
) -> ModelResult:
    """Find the shortest schedule of a window's ops.

    Parameters
    ----------
    largest_makespan, smallest_makespan:
        Units that the makespan lies between.
    scope:
        Whether ops may start late; see `add_constraints`.
    hint:
        Start from the present order. Worth it only if that is a solution: where something better is demanded, the
        hint was seen to make proofs take three times as long.
    """
    model = cp_model.CpModel()
    variables = add_variables(model, window, largest_makespan, largest_makespan)
    add_constraints(model, variables, scope)
    model.add(variables.makespan >= smallest_makespan)
    model.minimize(variables.makespan)
    if hint:
        _add_hints(model, variables)
    solver = configured(effort)
    collector = _Collector(variables, on_solution)
    with stopped_by(solver, effort.stop):
        status = _STATUS[solver.solve(model, collector)]  # no entry for an invalid model
    bound = None if status == "infeasible" else max(int(solver.best_objective_bound), smallest_makespan)
    return ModelResult(status, bound, collector.sequences)


def configured(effort: Effort) -> cp_model.CpSolver:
    """Return a solver with these limits."""
    solver = cp_model.CpSolver()
    if effort.deterministic:
        solver.parameters.max_deterministic_time = effort.seconds
    else:
        solver.parameters.max_time_in_seconds = max(effort.seconds, 0.0)
    solver.parameters.catch_sigint_signal = False
    solver.parameters.random_seed = effort.seed
    solver.parameters.num_workers = effort.num_workers
    return solver


def _add_hints(model: cp_model.CpModel, variables: Variables) -> None:
    """Hint at the times of the present order, as far as their domains allow."""
    timing = variables.window.timing
    if timing is None:
        return
    for op, variable in variables.start.items():
        if not (op[1] == BACKWARD_WEIGHT and variables.window.is_fused[op[0], op[2]]):
            model.add_hint(variable, min(int(timing.start[op]), variables.horizon))
    for message, variable in variables.message_start.items():
        model.add_hint(variable, min(int(timing.message_start[message]), variables.horizon))
    for choice, variable in variables.fused.items():
        model.add_hint(variable, bool(variables.window.is_fused[choice]))


class _Collector(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Reads the sequences of every improving solution."""

    def __init__(self, variables: Variables, on_solution: OnSolution) -> None:
        super().__init__()
        self._variables = variables
        self._on_solution = on_solution
        self.sequences: list[list[int]] | None = None

    def on_solution_callback(self) -> None:
        """Called by the solver at every improvement."""
        self.sequences = [self._sequence(ops) for ops in self._variables.window.ops]
        messages = self._messages() if self._variables.message_start else []
        self._on_solution(self.sequences, messages, int(self.best_objective_bound))

    def _sequence(self, ops: list[Op]) -> list[int]:
        """Return op codes by start; ops without duration at one instant go along their microbatch's path."""
        entries = []
        for op in ops:
            stage, kind_class, microbatch = op
            if not (kind_class == BACKWARD_WEIGHT and self._is_fused(stage, microbatch)):
                entries.append((*self._turn(op), self._code(op)))
        return [entry[-1] for entry in sorted(entries)]

    def _turn(self, op: Op) -> tuple[int, int, int, int]:
        num_stages = self._variables.window.staged.num_stages
        stage, kind_class, microbatch = op
        begin, end = (self.value(when[op]) for when in (self._variables.start, self._variables.end))
        step = (stage, 2 * num_stages - stage, 2 * num_stages + 1)[kind_class]
        return begin, end, step, microbatch

    def _messages(self) -> list[int]:
        """Return all messages by departure, those at one instant by producers; only for the whole problem."""
        staged = self._variables.window.staged
        entries = []
        for edge in np.flatnonzero(staged.edge_crosses).tolist():
            for direction, microbatch in product(range(2), range(staged.num_microbatches)):
                message = edge, direction, microbatch
                departure = self.value(self._variables.departure(message))
                code = (edge * 2 + direction) * staged.num_microbatches + microbatch
                entries.append((departure, self._turn(producer(staged, message)), code))
        return [code for _, _, code in sorted(entries)]

    def _is_fused(self, stage: int, microbatch: int) -> bool:
        choice = self._variables.fused.get((stage, microbatch))
        if choice is None:
            return bool(self._variables.window.is_fused[stage, microbatch])
        return bool(self.value(choice))

    def _code(self, op: Op) -> int:
        stage, kind, microbatch = op
        if kind == BACKWARD_INPUT and self._is_fused(stage, microbatch):
            kind = BACKWARD
        return encode(stage, kind, microbatch, self._variables.window.staged.num_microbatches)
