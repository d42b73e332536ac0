"""Candidates of the search: a partition, a placement, and the policy that orders them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from octoplan.tuner.arrays import scheduled_microbatches
from octoplan.tuner.pricing_kernel import DELTA_SIZE, FUSE, RULE_SIZE
from octoplan_solvers.list_scheduling import (
    ListScheduler,
    MemoryTooSmallError,
    Policy,
    PolicyRule,
    best_of_portfolio,
    microbatch_period,
)
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged


@dataclass(frozen=True)
class Candidate:
    """A partition and placement with its policy, as the arrays that the kernels take, and its makespan.

    ``cuts`` are the ``S + 1`` ends of the stages, ``rule`` the numbers of `PolicyRule` (see `rule_array`), ``delta``
    the ``(S, 4)`` biases that are added to the rule's and, in the last column, which backwards are fused.
    """

    cuts: IntArray
    ranks: IntArray
    rule: FloatArray
    delta: FloatArray
    makespan_s: float

    @property
    def assignment(self) -> Assignment:
        """The partition and placement."""
        return Assignment.from_sizes(np.diff(self.cuts).tolist(), self.ranks.tolist())

    def policy(self, scheduler: ListScheduler) -> Policy:
        """Return the policy for a scheduler of the same assignment."""
        urgency, backward_first, weight_delay, alternate, memory_bonus, *patience = self.rule.tolist()
        rule = PolicyRule(urgency, backward_first, weight_delay, alternate, memory_bonus, patience[2])
        policy = rule.on(scheduler.staged)
        return Policy(
            bias=policy.bias + self.delta[:, :FUSE],
            max_in_flight=policy.max_in_flight,
            fuse=self.delta[:, FUSE] > 0.5,
            alternate=alternate,
            memory_bonus=memory_bonus,
            patience=(patience[0], patience[1], patience[2]),
        )


def rule_array(rule: PolicyRule) -> FloatArray:
    """Return a rule as the array that the kernels take."""
    numbers = np.zeros(RULE_SIZE)
    numbers[:5] = rule.urgency, rule.backward_first, rule.weight_delay, rule.alternate, rule.memory_bonus
    numbers[7] = rule.wait
    return numbers


class Pricer:
    """Prices assignments with the portfolio of rules, and remembers the shortage closest to fitting."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        self._rank_max_in_flight = problem.constraints.rank_max_in_flight(
            problem.num_ranks, problem.num_microbatches
        )
        self.least_short: MemoryTooSmallError | None = None

    def scheduler(self, assignment: Assignment, num_microbatches: int | None = None) -> ListScheduler | None:
        """Return a list scheduler, or None if one microbatch at a time does not fit."""
        staged = build_staged(self.problem, assignment)
        if num_microbatches is not None:
            staged = replace(staged, num_microbatches=num_microbatches)
        try:
            return ListScheduler(staged, self._rank_max_in_flight)
        except MemoryTooSmallError as error:
            if self.least_short is None or error.short_bytes < self.least_short.short_bytes:
                self.least_short = error
            return None

    def best(self, assignment: Assignment) -> Candidate | None:
        """Return the candidate with the portfolio's best rule, or None if it does not fit."""
        scheduled = scheduled_microbatches(self.problem)
        scheduler = self.scheduler(assignment, scheduled)
        if scheduler is None:
            return None
        rule, makespan = best_of_portfolio(scheduler)
        makespan += (self.problem.num_microbatches - scheduled) * microbatch_period(scheduler.staged)
        cuts = np.array([0, *(end for _, end in assignment.boundaries)], dtype=np.int64)
        ranks = np.array(assignment.ranks, dtype=np.int64)
        return Candidate(cuts, ranks, rule_array(rule), np.zeros((len(ranks), DELTA_SIZE)), makespan)
