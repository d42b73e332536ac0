"""Small problems are solved to the end: Benders decomposition with exact orders."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import numpy as np

from octoplan.ordering import OrderedPlan, confirm, run_order
from octoplan.stopping import run_stoppable
from octoplan_solvers.benders import BendersResult, Price, solve_by_benders
from octoplan_solvers.bounds import Bound
from octoplan_solvers.order_search import WIDTHS, SequenceSearch, compile_kernels, solve_order
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged
from octoplan_solvers.stopping import is_stopped

#: Name of the bound, and the solver that the proof may use, whichever one was chosen for bounds and starts: others can
#: neither be stopped nor leave out assignments.
PROOF_NAME = "benders"
PROOF_SOLVER = "cp-sat"
#: Compute ops (were every layer a stage) up to which orders are solved exactly.
MANY_OPS = 300
#: Seconds that sequences of one assignment may take; later twice as many each time.
_SEQUENCES_S = 20.0
#: Share of these that CP-SAT gets instead.
_MODELS_SHARE = 0.25


def is_small(problem: PipelineProblem) -> bool:
    """True if optimality can be hoped for."""
    ops = problem.num_layers * problem.num_microbatches * (3 if problem.split_backward else 2)
    return ops <= MANY_OPS


def warm_up(problem: PipelineProblem) -> None:
    """Compile the kernels of the proof before its clock starts; the first run on a machine pays."""
    ranks = np.minimum(np.arange(problem.num_layers), problem.num_ranks - 1)
    compile_kernels(build_staged(problem, Assignment.from_layer_ranks(ranks.tolist())))


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
    warm_up(problem)
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
    return pricer.best, Bound(PROOF_NAME, result.bound_s)


class _ExactPricer:
    """Searches the orders of each assignment, wider every time it is asked, and keeps the best plan."""

    def __init__(
        self, problem: PipelineProblem, best: OrderedPlan | None, deadline: float, seed: int
    ) -> None:
        self.best = best
        self.stop: threading.Event | None = None
        self._problem = problem
        self._deadline = deadline
        self._seed = seed
        self._searches: dict[Assignment, SequenceSearch] = {}

    def price(self, assignment: Assignment, beat_s: float, effort: int) -> Price:
        """Price one assignment: by sequences, or by CP-SAT where those would take too long."""
        orders = self._search_of(assignment)
        more = max(effort - len(WIDTHS) + 1, 0)
        width, allowed_s = WIDTHS[min(effort, len(WIDTHS) - 1)] * 4**more, _SEQUENCES_S * 2**more
        if orders.expected_seconds(width) <= allowed_s:
            until = min(time.monotonic() + allowed_s, self._deadline)
            orders.run(width, beat_s, lambda: is_stopped(self.stop) or time.monotonic() >= until)
        else:
            self._solve_models(orders, beat_s, allowed_s * _MODELS_SHARE)
        if orders.order is not None and orders.makespan_s < min(beat_s, self._best_s):
            self.best = run_order(orders.staged, orders.order)
        return Price(orders.makespan_s, orders.bound_s)

    @property
    def _best_s(self) -> float:
        return math.inf if self.best is None else self.best.makespan_s

    def _search_of(self, assignment: Assignment) -> SequenceSearch:
        if assignment not in self._searches:
            staged = build_staged(self._problem, assignment)
            self._searches[assignment] = SequenceSearch(staged, confirm(staged))
        return self._searches[assignment]

    def _solve_models(self, orders: SequenceSearch, beat_s: float, seconds: float) -> None:
        left = min(seconds, self._deadline - time.monotonic())
        if left > 0:
            solve_order(
                orders.staged,
                confirm(orders.staged),
                time_limit_s=left,
                seed=self._seed,
                stop=self.stop,
                below_s=beat_s,
                sequences=orders,
            )
