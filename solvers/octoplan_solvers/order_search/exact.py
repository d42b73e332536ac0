"""`solve_order`: the best order of a fixed partition and placement by CP-SAT, with a proof if there is time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np

from octoplan_solvers.list_scheduling import ListScheduler, MemoryTooSmallError, best_of_portfolio
from octoplan_solvers.ops import NUM_KINDS
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.constraints import Scope
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.model import Effort, ModelResult, solve_window
from octoplan_solvers.order_search.result import TOLERANCE, Evaluate, OrderResult, is_better
from octoplan_solvers.order_search.variables import queued_pairs
from octoplan_solvers.order_search.window import sort_by_microbatch, whole_problem
from octoplan_solvers.result import Status
from octoplan_solvers.staged import StagedProblem

SOLVER = "cp-sat-order"


def solve_order(
    staged: StagedProblem,
    evaluate: Evaluate,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    hint: Order | None = None,
    deterministic: bool = False,
    stop: threading.Event | None = None,
) -> OrderResult:
    """Minimise the makespan over all orders; in a split job any backward may also be fused.

    First over a superset of the simulations, in which an op may start late; its optimum is a bound. If that is not
    reached, because orders break a limit when they are simulated, then over the simulations themselves; that raises
    the bound only if all times are multiples of one decimal unit. A plan may also send messages in another order
    than they are made: the bound covers that, but an `Order` cannot say it. Where it pays, the best order is still
    found, but not proved to be.

    Parameters
    ----------
    evaluate:
        Exact simulation; only what it confirms becomes an objective.
    time_limit_s:
        Seconds, or deterministic seconds of CP-SAT with ``deterministic`` (then with ``num_workers=1`` the result is
        the same every time).
    hint:
        An order to start from; by default the best of list scheduling's portfolio.

    Returns
    -------
    OrderResult
        ``optimal`` if the objective equals the bound within 1e-9; ``infeasible`` only if that is proved.
    """
    search = _Search(staged, evaluate, hint, time.monotonic())
    effort = Effort(time_limit_s, seed, num_workers, deterministic, stop)
    status = search.run(effort, "superset")
    for scope in search.narrower_scopes():
        left = time_limit_s if deterministic else time_limit_s - search.seconds()
        if status not in ("optimal", "infeasible") or search.is_finished(status) or left <= 0:
            break
        status = search.run(replace(effort, seconds=left), scope)
    return search.result(status, seed)


class _Search:
    """The incumbent and the bound, as successive models improve them."""

    def __init__(self, staged: StagedProblem, evaluate: Evaluate, hint: Order | None, began: float) -> None:
        self._staged = staged
        self._evaluate = evaluate
        self._began = began
        self._bound = 0
        self._trace: list[tuple[float, float | None, float | None]] = []
        self._order: Order | None = None
        self._makespan_s: float | None = None
        given = starting_order(staged) if hint is None else require_all_ops(staged, hint)
        self._hint = None
        if given is not None:
            self._hint = sort_by_microbatch(given)
            self._consider(given)
            self._consider(self._hint)
        longest = _serial_makespan(staged) if self._makespan_s is None else self._makespan_s
        self.times = IntegerTimes.of(staged, longest)
        self._horizon_s = longest

    def narrower_scopes(self) -> list[Scope]:
        """Return what to search if the superset's optimum is no simulation."""
        return ["simulations", "first-in-first-out"] if queued_pairs(self._staged) else ["simulations"]

    def run(self, effort: Effort, scope: Scope) -> Status:
        """Search for something better than the incumbent; raise the bound where the scope allows it."""
        times, hint = self.times, self._hint
        if scope != "superset":
            times, hint = times.rounded_to_nearest(self._staged), None
        # Ops that take no time are not told apart well enough there: some simulations are no solutions.
        timed = bool((self._staged.duration_s > 0).all())
        gives_bound = scope == "superset" or (scope == "simulations" and times.exact and timed)
        largest = self._largest_makespan()
        found = solve_window(
            whole_problem(self._staged, times, hint),
            largest_makespan=largest,
            smallest_makespan=self._bound if gives_bound else 0,
            effort=effort,
            scope=scope,
            hint=self._makespan_s is None,
            on_solution=lambda sequences, bound: self._on_solution(sequences, bound if gives_bound else 0),
        )
        if gives_bound:
            self._raise_bound(found, largest)
            return found.status
        return "optimal" if found.status == "infeasible" else found.status

    def is_finished(self, status: Status) -> bool:
        """Tell whether nothing is left to search for."""
        if self._makespan_s is None:
            return status == "infeasible"
        return self._makespan_s * (1 - TOLERANCE) <= self.bound_s

    @property
    def bound_s(self) -> float:
        """Lower bound in seconds, taken down by the error within which times count as exact."""
        return self.times.seconds(self._bound) * (1 - TOLERANCE * 1e-3)

    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began

    def result(self, status: Status, seed: int) -> OrderResult:
        """Sum up."""
        if self._makespan_s is not None:
            status = "optimal" if self.is_finished(status) else "feasible"
        elif status != "infeasible":
            status = "unknown"
        return OrderResult(
            status=status,
            solver=SOLVER,
            seed=seed,
            seconds=self.seconds(),
            objective_s=self._makespan_s,
            bound_s=None if status == "infeasible" else self.bound_s,
            order=self._order,
            trace=tuple(self._trace),
        )

    def _largest_makespan(self) -> int:
        if self._makespan_s is not None:
            return self.times.largest_below(self._makespan_s)
        return self.times.largest_below(self._horizon_s) + 1

    def _raise_bound(self, found: ModelResult, largest: int) -> None:
        """No solution up to ``largest`` means that nothing is better than the incumbent."""
        bound = largest + 1 if found.bound is None else min(found.bound, largest + 1)
        if bound > self._bound:
            self._bound = bound
            self._note()

    def _on_solution(self, sequences: list[list[int]], bound: int) -> None:
        self._bound = max(self._bound, min(bound, self._largest_makespan() + 1))
        self._consider(order_of(self._staged, sequences))

    def _consider(self, order: Order) -> None:
        makespan_s = self._evaluate(order)
        if is_better(makespan_s, self._makespan_s):
            self._order, self._makespan_s = order, makespan_s
            self._note()

    def _note(self) -> None:
        bound = self.bound_s if self._bound else None
        self._trace.append((self.seconds(), self._makespan_s, bound))


def order_of(staged: StagedProblem, sequences: list[list[int]]) -> Order:
    """Return the order that runs these ops on each rank."""
    codes = [code for sequence in sequences for code in sequence]
    begin = np.cumsum([0, *(len(sequence) for sequence in sequences)])
    return Order(np.array(codes, dtype=np.int64), begin.astype(np.int64), staged.num_microbatches)


def starting_order(staged: StagedProblem) -> Order | None:
    """Return the best order of list scheduling's portfolio, None if it has none."""
    try:
        scheduler = ListScheduler(staged)
    except MemoryTooSmallError:
        return None
    rule, _ = best_of_portfolio(scheduler)
    return scheduler.schedule(rule.on(staged)).order


def require_all_ops(staged: StagedProblem, order: Order) -> Order:
    """Return the order, if it holds one F and one B (or, in a split job, I and W) of every stage and microbatch.

    Raises
    ------
    ValueError
        If not.
    """
    present = np.zeros(staged.num_stages * staged.num_microbatches * NUM_KINDS, dtype=np.int64)
    inside = (order.ops >= 0) & (order.ops < len(present))
    np.add.at(present, order.ops[inside], 1)
    forward, apart, weight, together = present.reshape(-1, NUM_KINDS).T
    complete = (forward == 1) & (apart == weight) & (apart + together == 1)
    if not (inside.all() and complete.all()) or (apart.any() and not staged.split_backward):
        kinds = "B or I and W" if staged.split_backward else "B"
        raise ValueError(f"the order must hold F and {kinds} of every stage and microbatch, each once")
    return order


def _serial_makespan(staged: StagedProblem) -> float:
    """Seconds that no simulation exceeds: everything, one after another."""
    delays = (staged.transfer_s + staged.latency_s)[staged.edge_crosses]
    return float(staged.num_microbatches * (staged.duration_s.sum() + delays.sum()))
