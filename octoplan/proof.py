"""Small problems are solved to the end: Benders decomposition with exact orders."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from octoplan.ordering import OrderedPlan, confirm, run_order
from octoplan.stopping import run_stoppable
from octoplan_solvers.benders import BendersResult, Price, solve_by_benders
from octoplan_solvers.bounds import Bound
from octoplan_solvers.order_search import solve_order
from octoplan_solvers.placement_check import assignment_bound
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged

#: Compute ops (were every layer a stage) up to which orders are solved exactly.
MANY_OPS = 300
#: Seconds that the order of one assignment may take.
_ORDER_S = 5.0


def is_small(problem: PipelineProblem) -> bool:
    """True if optimality can be hoped for. The exact order solver does not know limits on microbatches in flight."""
    ops = problem.num_layers * problem.num_microbatches * (3 if problem.split_backward else 2)
    return ops <= MANY_OPS and not problem.constraints.max_in_flight


def prove(
    problem: PipelineProblem,
    incumbent: OrderedPlan | None,
    *,
    time_limit_s: float,
    seed: int,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, float], None] = lambda incumbent_s, bound_s: None,
) -> tuple[OrderedPlan | None, Bound]:
    """Return the best plan and the bound that Benders decomposition reaches within the time.

    Parameters
    ----------
    incumbent:
        A plan that fits, or None.
    should_stop:
        Asked ten times a second; True ends the proof with what it has.
    on_progress:
        Told makespan and bound in seconds after every assignment priced.
    """
    if not problem.layer_time_s.any():
        return incumbent, Bound("benders", 0.0)
    pricer = _ExactPricer(problem, incumbent, time.monotonic() + time_limit_s, seed)

    def solve(stop: threading.Event) -> BendersResult:
        pricer.stop = stop
        return solve_by_benders(
            problem,
            pricer.price,
            time_limit_s=time_limit_s,
            seed=seed,
            incumbent_s=math.inf if incumbent is None else incumbent.makespan_s,
            incumbent=None if incumbent is None else incumbent.staged.assignment,
            stop=stop,
            on_progress=on_progress,
        )

    result = run_stoppable(solve, should_stop)
    return pricer.best, Bound("benders", result.bound_s)


class _ExactPricer:
    """Solves the order of each assignment, and keeps the best plan."""

    def __init__(
        self, problem: PipelineProblem, best: OrderedPlan | None, deadline: float, seed: int
    ) -> None:
        self.best = best
        self.stop: threading.Event | None = None
        self._problem = problem
        self._deadline = deadline
        self._seed = seed

    def price(self, assignment: Assignment, beat_s: float) -> Price:
        """Price one assignment."""
        staged = build_staged(self._problem, assignment)
        left = max(self._deadline - time.monotonic(), 0.01)
        result = solve_order(
            staged, confirm(staged), time_limit_s=min(left, _ORDER_S), seed=self._seed, stop=self.stop
        )
        if result.status == "infeasible":
            return Price(math.inf, math.inf)
        if result.order is not None and result.objective_s is not None and result.objective_s < beat_s:
            self.best = run_order(staged, result.order)
        bound = assignment_bound(self._problem, assignment)
        return Price(
            math.inf if result.objective_s is None else result.objective_s, max(bound, result.bound_s or 0.0)
        )
