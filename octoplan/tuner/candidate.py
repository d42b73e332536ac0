"""Candidates of the search: a partition, a placement, and the policy that orders them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from octoplan.engine_order import only_fused_first_stage, torch_orders
from octoplan.ordering import OrderedPlan, confirm
from octoplan.tuner.arrays import problem_arrays, scheduled_microbatches
from octoplan.tuner.pricing_kernel import DELTA_SIZE, FUSE, RULE_SIZE, price_kernel
from octoplan_solvers.list_scheduling import (
    ListScheduler,
    MemoryTooSmallError,
    Policy,
    PolicyRule,
    best_of_portfolio,
    microbatch_period,
)
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import StagedProblem, build_staged


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
    """Prices assignments with the portfolio of rules, and remembers the shortage closest to fitting.

    Parameters
    ----------
    fuse_first_stage:
        Whether every backward of the first stage is one B, as some engines run it whatever the plan says.
    """

    def __init__(self, problem: PipelineProblem, *, fuse_first_stage: bool = False) -> None:
        self.problem = problem
        self.fuse_first_stage = fuse_first_stage
        self.arrays = problem_arrays(problem, fuse_first_stage=fuse_first_stage)
        self._rank_max_in_flight = problem.constraints.rank_max_in_flight(
            problem.num_ranks, problem.num_microbatches
        )
        self.least_short: MemoryTooSmallError | None = None
        #: Plans that are there already: the orders to finish with are the best of these and of the search's.
        self.known: tuple[OrderedPlan, ...] = ()
        #: Candidates whose policies are tried, besides the portfolio, wherever their assignment is priced.
        self.candidates: tuple[Candidate, ...] = ()

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

    def policy(self, candidate: Candidate, scheduler: ListScheduler) -> Policy:
        """Return a candidate's policy for a scheduler of the same assignment, with what the engine asks for."""
        policy = candidate.policy(scheduler)
        if not self.fuse_first_stage:
            return policy
        return replace(policy, fuse=policy.fuse | (np.arange(len(policy.fuse)) == 0))

    def confirm(self, staged: StagedProblem) -> Callable[[Order], float | None]:
        """Return the exact simulation of an order as the order solvers take it: None where it is not allowed."""
        evaluate = confirm(staged)
        return only_fused_first_stage(evaluate) if self.fuse_first_stage else evaluate

    def allowed_orders(self, plan: OrderedPlan) -> list[OrderedPlan]:
        """Return what a plan of any order becomes where the engine asks for something."""
        return torch_orders(plan) if self.fuse_first_stage else [plan]

    def best(
        self,
        assignment: Assignment,
        *,
        give_up_s: float = float("inf"),
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Candidate | None:
        """Return the candidate with the best policy of the portfolio and of the known candidates.

        Parameters
        ----------
        give_up_s:
            A candidate that takes longer is of no use.
        should_stop:
            Asked after every policy; True ends with the best so far.

        Returns
        -------
        Candidate or None
            None if it does not fit, or is of no use.
        """
        if self.fuse_first_stage:
            give_up_s = float("inf")  # the portfolio does not know what the engine will make of it
        scheduled = scheduled_microbatches(self.problem)
        scheduler = self.scheduler(assignment, scheduled)
        if scheduler is None:
            return None
        extra_s = (self.problem.num_microbatches - scheduled) * microbatch_period(scheduler.staged)
        rule, makespan = best_of_portfolio(scheduler, give_up_s - extra_s, should_stop)
        makespan += extra_s
        cuts = np.array([0, *(end for _, end in assignment.boundaries)], dtype=np.int64)
        ranks = np.array(assignment.ranks, dtype=np.int64)
        numbers, delta = rule_array(rule), np.zeros((len(ranks), DELTA_SIZE))
        if self.fuse_first_stage:
            makespan = float(price_kernel(self.arrays, cuts, ranks, numbers, delta, np.inf))
        best = Candidate(cuts, ranks, numbers, delta, makespan)
        for known in self.candidates:
            if np.array_equal(known.cuts, cuts) and np.array_equal(known.ranks, ranks):
                best = min(best, self._priced_again(known), key=lambda candidate: candidate.makespan_s)
        return best if np.isfinite(best.makespan_s) else None

    def _priced_again(self, known: Candidate) -> Candidate:
        """Return a candidate of another problem with the makespan that it has in this one."""
        price = price_kernel(self.arrays, known.cuts, known.ranks, known.rule, known.delta, np.inf)
        return replace(known, makespan_s=float(price))
