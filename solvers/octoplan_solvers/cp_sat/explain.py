"""Why a problem is infeasible: limits and constraints that cannot hold together, and what would help."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from octoplan_solvers.cp_sat.constraints import MEMORY_RESOLUTION, Context, add_constraints
from octoplan_solvers.cp_sat.guards import Guards
from octoplan_solvers.cp_sat.variables import add_variables
from octoplan_solvers.placement_costs import PlacementCosts
from octoplan_solvers.placement_limits import certain_excess, cut_layers
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.result import SolverResult


def explain_infeasible(
    problem: PipelineProblem, result: SolverResult, *, time_limit_s: float = 5.0
) -> SolverResult:
    """Return an infeasible result with its conflict and remedy, as far as they are found in time."""
    conflict = find_conflict(problem, time_limit_s=time_limit_s)
    return replace(result, conflict=conflict, remedy=_remedy(problem, conflict, time_limit_s))


def find_conflict(problem: PipelineProblem, *, time_limit_s: float = 5.0) -> tuple[str, ...]:
    """Return names of constraints that cannot hold together; empty if none are found in time.

    CP-SAT derives a sufficient set from assumptions, one per named constraint. Constraints are then dropped one by
    one as long as the rest stays infeasible, so that (time permitting) every name in the answer is needed.
    """
    _, overfull = certain_excess(problem)
    if overfull:
        return overfull
    deadline = time.monotonic() + time_limit_s
    guarded = _guarded_model(problem)
    conflict = guarded.infeasible_subset(list(guarded.guards.literals), time_limit_s)
    if conflict is None:
        return ()
    for name in list(conflict):
        left = deadline - time.monotonic()
        if left <= 0 or name not in conflict:
            continue
        smaller = guarded.infeasible_subset([other for other in conflict if other != name], left)
        if smaller is not None:
            conflict = smaller
    return tuple(conflict)


@dataclass(frozen=True)
class _GuardedModel:
    model: cp_model.CpModel
    guards: Guards

    def infeasible_subset(self, names: Sequence[str], time_limit_s: float) -> list[str] | None:
        """Return those of the named constraints that suffice for infeasibility; None unless that is proved."""
        self.model.clear_assumptions()
        self.model.add_assumptions([self.guards.literals[name] for name in names])
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = time_limit_s
        solver.parameters.catch_sigint_signal = False
        # Assumptions are answered by one worker only.
        solver.parameters.num_workers = 1
        if solver.solve(self.model) != cp_model.INFEASIBLE:
            return None
        core = set(solver.sufficient_assumptions_for_infeasibility())
        return [name for name in names if self.guards.literals[name].index in core]


def _guarded_model(problem: PipelineProblem) -> _GuardedModel:
    model = cp_model.CpModel()
    guards = Guards(model, explain=True)
    variables = add_variables(model, problem, PlacementCosts.of(problem), cut_layers(problem))
    add_constraints(Context(model, problem, variables, guards))
    return _GuardedModel(model, guards)


def _remedy(problem: PipelineProblem, conflict: Sequence[str], time_limit_s: float) -> str:
    if not any("limit of rank" in name for name in conflict):
        return f"drop or relax one of: {', '.join(conflict)}" if conflict else ""
    certain, _ = certain_excess(problem)
    factor = max(certain, least_memory_factor(problem, time_limit_s=time_limit_s) or 1.0)
    if factor == 1.0:
        return ""
    return f"memory limits at least {factor:.4g} times as large"


def least_memory_factor(problem: PipelineProblem, *, time_limit_s: float = 5.0) -> float | None:
    """Return by how much all memory limits must be multiplied at least; None if that alone is not known to help."""
    model = cp_model.CpModel()
    variables = add_variables(model, problem, PlacementCosts.of(problem), cut_layers(problem))
    room = model.new_int_var(MEMORY_RESOLUTION, 2**53, "room")
    add_constraints(Context(model, problem, variables, Guards(model), memory_room=room))
    model.minimize(room)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.catch_sigint_signal = False
    solver.parameters.num_workers = 2
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return float(solver.best_objective_bound) / MEMORY_RESOLUTION
