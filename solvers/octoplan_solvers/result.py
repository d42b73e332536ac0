"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from octoplan_solvers.problem import Assignment

#: ``optimal``: proved; ``feasible``: a solution, optimality open; ``infeasible``: proved that there is none;
#: ``unknown``: stopped without either. A timeout is never "infeasible".
Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class SolverResult:
    """Outcome of one solver run; an absent objective or bound is None, never 0."""

    status: Status
    solver: str
    seed: int
    seconds: float
    #: Seconds of makespan that the solver's own objective claims for `assignment`.
    objective_s: float | None = None
    #: No assignment has a smaller objective.
    bound_s: float | None = None
    assignment: Assignment | None = None
    #: Every solution met, best last.
    solutions: tuple[Assignment, ...] = ()
    #: ``(seconds, objective, bound)`` whenever one of them improved.
    trace: tuple[tuple[float, float, float], ...] = field(default=())
    #: Names of limits and constraints that cannot hold together, if infeasible and known.
    conflict: tuple[str, ...] = ()
    #: What would make an infeasible problem feasible, in words; empty if unknown.
    remedy: str = ""
