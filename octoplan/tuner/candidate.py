"""Candidates of the search and their price."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan_solvers.list_scheduling import ListScheduler, MemoryTooSmallError, PolicyRule, best_of_portfolio
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition and placement, the rule that orders it, and the makespan in seconds that the rule reaches."""

    assignment: Assignment
    rule: PolicyRule
    makespan_s: float


class Pricer:
    """Prices candidates of one problem and counts the evaluations."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        self.num_evaluations = 0
        #: The memory shortage closest to fitting, for the message if nothing fits.
        self.least_short: MemoryTooSmallError | None = None

    def scheduler(self, assignment: Assignment) -> ListScheduler | None:
        """Return a list scheduler, or None if one microbatch at a time does not fit."""
        try:
            return ListScheduler(build_staged(self.problem, assignment))
        except MemoryTooSmallError as error:
            if self.least_short is None or error.short_bytes < self.least_short.short_bytes:
                self.least_short = error
            return None

    def price(self, assignment: Assignment, rule: PolicyRule, give_up_s: float = float("inf")) -> float:
        """Return the makespan in seconds; infinite above ``give_up_s`` or if it does not fit."""
        self.num_evaluations += 1
        scheduler = self.scheduler(assignment)
        if scheduler is None:
            return float("inf")
        return scheduler.makespan(rule.on(scheduler.staged), give_up_s)

    def best(self, assignment: Assignment, give_up_s: float = float("inf")) -> Candidate | None:
        """Return the candidate with the portfolio's best rule, or None if nothing is below ``give_up_s``."""
        self.num_evaluations += 1
        scheduler = self.scheduler(assignment)
        if scheduler is None:
            return None
        rule, makespan = best_of_portfolio(scheduler, give_up_s)
        return Candidate(assignment, rule, makespan) if makespan < float("inf") else None
