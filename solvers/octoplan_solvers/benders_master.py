"""Masters of Benders decomposition: who says which assignment to price next, and what bounds the rest.

Small problems have a list of all assignments, sorted by bound. Otherwise CP-SAT minimises the bound over those that
have not been proposed.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Protocol

from octoplan_solvers.assignment_list import AssignmentList, list_assignments
from octoplan_solvers.cp_sat import solve_placement
from octoplan_solvers.problem import Assignment, PipelineProblem


@dataclass(frozen=True, slots=True)
class Proposal:
    """The next assignment to price; None: there is none with a smaller bound than asked for, or the time is up.

    ``bound_s``: no assignment that has not been proposed before has a smaller bound. Infinite if none is left.
    """

    assignment: Assignment | None
    bound_s: float


class Master(Protocol):
    """Proposes every assignment once."""

    def propose(self, below_s: float, time_limit_s: float) -> Proposal:
        """Return the next assignment with a bound below these seconds."""


def choose_master(
    problem: PipelineProblem,
    *,
    seed: int,
    num_workers: int,
    hint: Assignment | None,
    stop: threading.Event | None,
) -> Master:
    """Return a list of all assignments if it is short enough, else CP-SAT."""
    listed = list_assignments(problem)
    if listed is not None:
        return ListMaster(problem, listed)
    return CpSatMaster(problem, seed, num_workers, hint, stop)


class ListMaster:
    """Goes through a list."""

    def __init__(self, problem: PipelineProblem, listed: AssignmentList) -> None:
        self._problem = problem
        self._listed = listed
        self._next = 0

    def propose(self, below_s: float, time_limit_s: float) -> Proposal:
        """Return the next one that keeps the constraints."""
        while self._next < len(self._listed) and self._listed.bound_s[self._next] < below_s:
            assignment, bound_s = self._listed.assignment(self._next), self._listed.bound_s[self._next]
            self._next += 1
            if not self._problem.constraints.violations(assignment):
                return Proposal(assignment, float(bound_s))
        return Proposal(None, math.inf)


class CpSatMaster:
    """Solves the placement model over what has not been proposed yet."""

    def __init__(
        self,
        problem: PipelineProblem,
        seed: int,
        num_workers: int,
        hint: Assignment | None,
        stop: threading.Event | None,
    ) -> None:
        self._problem = problem
        self._seed, self._num_workers = seed, num_workers
        self._hint = hint
        self._stop = stop
        self._proposed: list[Assignment] = []

    def propose(self, below_s: float, time_limit_s: float) -> Proposal:
        """Return the best one found within the time."""
        found = solve_placement(
            self._problem,
            time_limit_s=time_limit_s,
            seed=self._seed,
            num_workers=self._num_workers,
            stop=self._stop,
            hint=None if self._proposed else self._hint,
            excluded=self._proposed,
            below_s=below_s if math.isfinite(below_s) else None,
        )
        if found.status == "infeasible":
            return Proposal(None, math.inf)
        if found.assignment is not None:
            self._proposed.append(found.assignment)
        return Proposal(found.assignment, found.bound_s or 0.0)
