"""`Pool`: every plan that was found, and those that no other beats in both memory and makespan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from octoplan.optimise import WarmStart
from octoplan_solvers.bounds import Bound
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment

#: Memory below this share of the next point's counts as this much.
_LEAST_RATIO = 1e-3
#: Neighbours this close (as a logarithm of their ratio) have nothing between them worth a search.
_TINY = 0.005
#: Relative difference of makespans that is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class PoolPlan:
    """A plan by what matters here: the memory that it needs, and its makespan."""

    memory: float
    makespan_s: float
    assignment: Assignment
    order: Order
    origin: str
    #: What a search of a neighbouring limit starts from.
    warm: WarmStart = field(default=WarmStart(), compare=False)


@dataclass
class Pool:
    """Plans and bounds; a plan fits every limit at or above its memory, a bound holds for every one at or below."""

    plans: list[PoolPlan] = field(default_factory=list)
    #: Limits that were searched, with the bound found there.
    bounds: list[tuple[float, Bound]] = field(default_factory=list)

    def frontier(self) -> list[PoolPlan]:
        """Return the plans that nothing beats, least memory first."""
        result: list[PoolPlan] = []
        for plan in sorted(self.plans, key=lambda one: (one.memory, one.makespan_s)):
            if not result or plan.makespan_s < result[-1].makespan_s * (1 - _ROUNDING):
                result.append(plan)
        return result

    def fastest(self, memory: float) -> list[PoolPlan]:
        """Return the plans that need no more than so much memory, fastest first."""
        return sorted(
            (plan for plan in self.plans if plan.memory <= memory), key=lambda plan: plan.makespan_s
        )

    def bound_at(self, limit: float) -> Bound | None:
        """Return the strongest bound that holds under a limit; None if only tighter ones were searched."""
        holding = [bound for searched, bound in self.bounds if searched >= limit]
        return max(holding, key=lambda bound: bound.seconds, default=None)

    def widest_gap(
        self, tried: Iterable[float], rounded_up: Callable[[float], float] = lambda limit: limit
    ) -> float | None:
        """Return the limit that would tell most: amid the largest rectangle between neighbours on the frontier.

        Its sides are a ratio of memory and a difference of throughput, so that the corner where plans are tiny and
        slow does not take all.

        Parameters
        ----------
        tried:
            Limits that were searched: where one brought nothing, the rectangle begins there.
        rounded_up:
            Returns the next limit that can be written down.

        Returns
        -------
        float or None
            None if all rectangles are tiny.
        """
        frontier, known = self.frontier(), list(tried)
        best, best_area = None, 0.0
        for left, right in pairwise(frontier):
            inside = [limit for limit in known if left.memory < limit < right.memory]
            low = max(left.memory, *inside, _LEAST_RATIO * right.memory)
            width = math.log(right.memory / low)
            area = width * (1 / right.makespan_s - 1 / left.makespan_s) if right.makespan_s > 0 else 0.0
            middle = rounded_up(math.sqrt(low * right.memory))
            if width > _TINY and area > best_area and middle < right.memory:
                best, best_area = middle, area
        return best
