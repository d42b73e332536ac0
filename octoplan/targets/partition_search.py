"""The search where placement and order are the engine's own: only the boundaries between stages move.

Simulated annealing over the boundaries, every partition priced by the exact simulation of the engine's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from octoplan.ordering import OrderedPlan, run_order
from octoplan.tuner import Budget
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged

#: First and last temperature of each round of a race, as shares of the makespan.
_COOLING = ((0.01, 0.001), (0.004, 0.0003), (0.002, 0.00005))
#: A partition above its memory limits costs so many makespans for every part of the limit that it is short of.
_SHORTAGE_WEIGHT = 10.0
#: Neighbours drawn for every one that is priced, before the walk gives up: the others are not allowed or too heavy.
_MOST_DRAWS = 50


@dataclass(frozen=True)
class FixedOrder:
    """A placement and an order that an engine runs whatever the partition is."""

    problem: PipelineProblem
    ranks: tuple[int, ...]
    order: Order

    def plan(self, assignment: Assignment) -> OrderedPlan:
        """Simulate a partition."""
        return run_order(build_staged(self.problem, assignment), self.order)

    @cached_property
    def _prefix_s(self) -> FloatArray:
        """``(T, L + 1)`` seconds of all work of one microbatch before each layer."""
        times = self.problem.layer_time_s
        return np.concatenate([np.zeros((len(times), 1)), np.cumsum(times, axis=1)], axis=1)

    def least_s(self, assignment: Assignment) -> float:
        """Return a lower bound: all work of the busiest rank."""
        first, end = np.array(assignment.boundaries).T
        ranks = np.array(assignment.ranks)
        kind = self.problem.rank_type[ranks]
        work = np.bincount(ranks, self._prefix_s[kind, end] - self._prefix_s[kind, first])
        return float(work.max()) * self.problem.num_microbatches


class PartitionWalk:
    """One annealing walk over the partitions of a fixed order (a contender of `octoplan.targets.race`)."""

    def __init__(
        self,
        fixed: FixedOrder,
        starts: Sequence[Assignment],
        budget: Budget,
        seed: int,
        on_better: Callable[[OrderedPlan, str], None],
    ) -> None:
        self.best: OrderedPlan | None = None
        #: The plan that costs least, whether it fits or not.
        self.closest: OrderedPlan = fixed.plan(starts[0])
        self._fixed, self._on_better = fixed, on_better
        self._random = np.random.default_rng(seed)
        self._assignment, self._cost_s = starts[0], math.inf
        for start in starts:
            cost_s = cost_of(self._price(start, budget, "start"))
            if cost_s < self._cost_s:
                self._assignment, self._cost_s = start, cost_s
            if budget.spent() >= 1:
                break

    @property
    def best_s(self) -> float:
        """Makespan of the best partition that fits."""
        return math.inf if self.best is None else self.best.makespan_s

    def advance(self, budget: Budget, round_number: int) -> None:
        """Cool down from the best partition so far."""
        hot, cold = _COOLING[round_number]
        if self.best is not None:
            self._assignment, self._cost_s = self.best.staged.assignment, self.best.makespan_s
        draws = 0
        while (spent := budget.spent()) < 1 and draws < _MOST_DRAWS * (budget.evaluations + 20):
            draws += 1
            temperature = hot * (cold / hot) ** spent
            allowed_s = self._cost_s * (1 - temperature * math.log(1 - self._random.random()))
            neighbour = self._neighbour()
            if neighbour is None or self._fixed.least_s(neighbour) > allowed_s:
                continue
            cost_s = cost_of(self._price(neighbour, budget, "partition"))
            if cost_s <= allowed_s:
                self._assignment, self._cost_s = neighbour, cost_s

    def _price(self, assignment: Assignment, budget: Budget, dimension: str) -> OrderedPlan:
        plan = self._fixed.plan(assignment)
        budget.evaluations += 1
        if cost_of(plan) < cost_of(self.closest):
            self.closest = plan
        if plan.makespan_s < self.best_s and not plan.excess_bytes().any():
            self.best = plan
            self._on_better(plan, dimension)
        return plan

    def _neighbour(self) -> Assignment | None:
        """Draw a neighbour; None if it breaks a constraint."""
        problem = self._fixed.problem
        cuts = np.array([0, *(end for _, end in self._assignment.boundaries)])
        if len(cuts) == 2:
            return None
        move_boundaries(cuts, self._random)
        if (np.diff(cuts) < 1).any():
            return None
        drawn = Assignment.from_sizes(np.diff(cuts).tolist(), self._fixed.ranks)
        return None if problem.constraints.violations(drawn) else drawn


def cost_of(plan: OrderedPlan) -> float:
    """Return the makespan in seconds, more where memory limits are broken."""
    excess = plan.excess_bytes()
    if not excess.any():
        return plan.makespan_s
    share = float((excess / np.maximum(plan.staged.memory_limit_bytes, 1.0)).sum())
    return plan.makespan_s * (1 + _SHORTAGE_WEIGHT * share)


def move_boundaries(cuts: IntArray, random: np.random.Generator) -> None:
    """Shift one inner boundary, a run of neighbouring ones together, or two anywhere, in place."""
    inner = len(cuts) - 2
    step = int(random.choice((-1, 1)))
    first, second = (int(index) for index in 1 + random.integers(inner, size=2))
    draw = random.random()
    if draw < 0.4:
        cuts[first] += step * (1 if random.random() < 0.7 else 2)
    elif draw < 0.75:
        cuts[min(first, second) : max(first, second) + 1] += step
    else:
        cuts[first] += step
        cuts[second] += int(random.choice((-1, 1)))
