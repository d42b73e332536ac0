"""What every restricted search works with: the starting plan, prices of candidates, and the way to an exact plan.

The starting plan is 1F1B: a uniform partition, stage s on rank s, 1F1B's order. On other placements there is no such
order; the *plain order* takes its part: a rank takes the ready op of the smallest microbatch number, backwards first,
each backward whole (B), and keeps to the memory limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from octoplan.baselines import build_schedule, uniform_boundaries
from octoplan.compile_options import CompileOptions, Progress
from octoplan.compiler import limited_problem
from octoplan.errors import InfeasibleError
from octoplan.ordering import OrderedPlan, order_by_policy, run_order
from octoplan.tuner import Budget, Candidate, Pricer, warm_up
from octoplan.tuner.annealing_kernel import is_allowed
from octoplan.tuner.arrays import ProblemArrays, problem_arrays
from octoplan.tuner.candidate import rule_array
from octoplan.tuner.pricing_kernel import DELTA_SIZE, FUSE, price_kernel
from octoplan_schemas import Cluster, InputError, ModelGraph
from octoplan_solvers.list_scheduling import PolicyRule
from octoplan_solvers.ops import IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.staged import build_staged

#: The plain order; with whole backwards no W is ever chosen.
PLAIN_ORDER = PolicyRule(urgency=0.0, backward_first=50.0, weight_delay=0.0, wait=0.0)


@dataclass(frozen=True)
class Workbench:
    """A problem with its kernels' arrays, the kinds of its layers, and the options that it is solved under.

    Attributes
    ----------
    searches_order:
        False: candidates are priced with 1F1B's order where it exists, else with their own plain order.
    """

    problem: PipelineProblem
    arrays: ProblemArrays
    layer_kinds: tuple[str, ...]
    options: CompileOptions
    budget: Budget
    searches_order: bool

    @classmethod
    def of(
        cls, model: ModelGraph, cluster: Cluster, options: CompileOptions, *, searches_order: bool = True
    ) -> Workbench:
        """Build the problem; the clock starts when the kernels are loaded."""
        warm_up()
        budget = Budget(options.time_limit_s, options.max_evaluations, options.should_stop)
        problem = limited_problem(model, cluster, options)
        kinds = tuple(layer.kind for layer in model.layers)
        return cls(problem, problem_arrays(problem), kinds, options, budget, searches_order)

    def start(self) -> Candidate:
        """Return the starting plan; its makespan is infinite where it does not fit.

        Raises
        ------
        InputError
            If there are too few layers for a uniform partition.
        """
        count = self.problem.num_ranks
        delta = np.zeros((count, DELTA_SIZE))
        delta[:, FUSE] = 1.0
        ranks = np.arange(count, dtype=np.int64)
        return self.priced(Candidate(self.uniform_cuts(count), ranks, rule_array(PLAIN_ORDER), delta, np.inf))

    def uniform_cuts(self, num_stages: int) -> IntArray:
        """Return the ends of the stages of a uniform partition."""
        boundaries = uniform_boundaries(self.layer_kinds, num_stages)
        return np.array([0, *(end for _, end in boundaries)], dtype=np.int64)

    def most_uniform_stages(self) -> int:
        """Return the largest number of stages that a uniform partition and the job admit."""
        most = self.problem.num_ranks * self.problem.max_stages_per_rank
        while most > self.problem.num_ranks:
            try:
                self.uniform_cuts(most)
            except InputError:
                most -= 1
            else:
                break
        return most

    def admits(self, candidate: Candidate) -> bool:
        """Decide whether an assignment is sound and keeps the job's constraints."""
        cuts, ranks = candidate.cuts, candidate.ranks
        if (np.diff(cuts) < 1).any():
            return False
        return bool(is_allowed(self.arrays, cuts, ranks, len(ranks)))

    def priced(self, candidate: Candidate, give_up_s: float = np.inf) -> Candidate:
        """Return the candidate with its makespan, infinite above ``give_up_s``; that is one evaluation."""
        self.budget.evaluations += 1
        plan = None if self.searches_order else self._one_f_one_b(candidate)
        if plan is not None:
            return replace(candidate, makespan_s=plan.makespan_s)
        makespan = price_kernel(
            self.arrays, candidate.cuts, candidate.ranks, candidate.rule, candidate.delta, give_up_s
        )
        return replace(candidate, makespan_s=float(makespan))

    def report(self, candidate: Candidate) -> None:
        """Tell whoever listens of an improvement."""
        self.options.on_progress(
            Progress("search", candidate.makespan_s, None, self.budget.evaluations, self.budget.spent())
        )

    def exact(self, candidate: Candidate) -> OrderedPlan | None:
        """Return a candidate's exact plan, or 1F1B's if that exists and is shorter; None if neither fits.

        Where the order is not searched, 1F1B's counts wherever it exists and fits.
        """
        one_f_one_b = self._one_f_one_b(candidate)
        if one_f_one_b is not None and not self.searches_order:
            return one_f_one_b
        plans = [] if one_f_one_b is None else [one_f_one_b]
        scheduler = Pricer(self.problem).scheduler(candidate.assignment)
        if scheduler is not None:
            plan = order_by_policy(scheduler, candidate.policy(scheduler))
            plans += [] if plan.excess_bytes().any() else [plan]
        return min(plans, key=lambda plan: plan.makespan_s, default=None)

    def _one_f_one_b(self, candidate: Candidate) -> OrderedPlan | None:
        """Return the exact plan with 1F1B's order; None unless rank s holds stage s alone, and it fits."""
        if not np.array_equal(candidate.ranks, np.arange(self.problem.num_ranks)):
            return None
        plan = run_order(build_staged(self.problem, candidate.assignment), self._one_f_one_b_order)
        return None if plan.excess_bytes().any() else plan

    @cached_property
    def _one_f_one_b_order(self) -> Order:
        count = self.problem.num_microbatches
        return Order.from_lists(build_schedule("1f1b", self.problem.num_ranks, count).orders, count)

    def best_plan(self, candidates: Iterable[Candidate]) -> OrderedPlan:
        """Return the shortest exact plan of several candidates.

        Raises
        ------
        InfeasibleError
            If none fits.
        """
        plans = [plan for candidate in candidates if (plan := self.exact(candidate)) is not None]
        if not plans:
            raise InfeasibleError("no plan was found that keeps every limit")
        return min(plans, key=lambda plan: plan.makespan_s)
