"""`solve_order`: the best order of a fixed partition and placement, with a proof if there is time.

First by enumerating sequences (`octoplan_solvers.order_search.sequences`), which decides small problems; then by
CP-SAT.
"""

from __future__ import annotations

import math
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
from octoplan_solvers.order_search.sequences import SequenceSearch
from octoplan_solvers.order_search.window import sort_by_microbatch, whole_problem
from octoplan_solvers.result import Status
from octoplan_solvers.staged import StagedProblem
from octoplan_solvers.stopping import is_stopped

SOLVER = "exact-order"
#: Nodes that a level of the sequences keeps, search after search.
WIDTHS = (64, 1024, 32768)
#: Share of the time that a search may be expected to take, else CP-SAT comes next.
_SEQUENCES_SHARE = 0.1


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
    below_s: float = math.inf,
    sequences: SequenceSearch | None = None,
) -> OrderResult:
    """Minimise the makespan over all orders of ops and of messages; in a split job any backward may also be fused.

    Sequences are enumerated with more and more room. What they leave open is left to CP-SAT: first over a superset of
    the simulations, in which an op may start late; its optimum is a bound. If that is not reached, because orders break
    a limit when they are simulated, then over the simulations themselves; that raises the bound only if all times are
    multiples of one decimal unit.

    Parameters
    ----------
    evaluate:
        Exact simulation; only what it confirms becomes an objective.
    time_limit_s:
        Seconds, or deterministic seconds of CP-SAT with ``deterministic`` (then with ``num_workers=1`` the result is
        the same every time).
    hint:
        An order to start from.
    below_s:
        Only orders shorter than this are of use: that there is none is an answer.
    sequences:
        What is known from enumerating sequences, and learns from the outcome; None: that is done first.

    Returns
    -------
    OrderResult
        ``optimal`` if the objective equals the bound within 1e-9; ``infeasible`` only if it is proved that no order (or
        none below ``below_s``, which then is the bound) keeps the limits.
    """
    search = _Search(staged, evaluate, below_s)
    effort = Effort(time_limit_s, seed, num_workers, deterministic, stop)
    if hint is not None:
        search.start_from(require_all_ops(staged, hint))
    if sequences is None:
        search.enumerate(SequenceSearch(staged, evaluate), effort)
    else:
        search.learn_from(sequences)
    if not search.is_settled:
        search.solve_models(effort)
    result = search.result(seed)
    if sequences is not None:
        sequences.take(result.order, result.objective_s or math.inf, search.bound_s)
    return result


class _Search:
    """The incumbent and the bound, as sequences and successive models improve them."""

    def __init__(self, staged: StagedProblem, evaluate: Evaluate, below_s: float) -> None:
        self._staged = staged
        self._evaluate = evaluate
        self._below_s = below_s
        self._began = time.monotonic()
        self.bound_s = 0.0
        self._trace: list[tuple[float, float | None, float | None]] = []
        self._order: Order | None = None
        self._makespan_s = math.inf
        self._hint: Order | None = None
        self._longest_s = _serial_makespan(staged)
        self._times = IntegerTimes.of(staged, self._longest_s)

    def start_from(self, order: Order) -> None:
        """Take an order as incumbent and as hint."""
        self._hint = sort_by_microbatch(order)
        self._consider(order)
        self._consider(self._hint)

    def enumerate(self, sequences: SequenceSearch, effort: Effort) -> None:
        """Search sequences of ops with more and more room."""

        def should_stop() -> bool:
            is_late = not effort.deterministic and time.monotonic() - self._began >= effort.seconds
            return is_late or is_stopped(effort.stop)

        for width in WIDTHS:
            if self.is_settled or sequences.expected_seconds(width) > _SEQUENCES_SHARE * effort.seconds:
                break
            sequences.run(width, self._target_s, should_stop)
            self.learn_from(sequences)

    def learn_from(self, sequences: SequenceSearch) -> None:
        """Take over what sequences have given."""
        if sequences.order is not None:
            self._take(sequences.order, sequences.makespan_s)
        self._raise_bound(sequences.bound_s)

    def solve_models(self, effort: Effort) -> None:
        """Go on with CP-SAT: over a superset of the simulations, then over these themselves."""
        if self._order is not None:
            self.start_from(self._order)
        elif (start := starting_order(self._staged)) is not None:
            self.start_from(start)
        self._times = IntegerTimes.of(self._staged, min(self._target_s, self._longest_s))
        status: Status = "infeasible"
        scopes: tuple[Scope, ...] = ("superset", "simulations")
        for scope in scopes:
            spent = 0.0 if effort.deterministic else time.monotonic() - self._began
            if self.is_settled or status not in ("optimal", "infeasible") or spent > effort.seconds:
                break
            status = self._solve_model(replace(effort, seconds=effort.seconds - spent), scope)

    def _solve_model(self, effort: Effort, scope: Scope) -> Status:
        """Search for something better than the incumbent; raise the bound where the scope allows it."""
        times, hint = self._times, self._hint
        if scope == "simulations":
            times, hint = times.rounded_to_nearest(self._staged), None
        # Ops that take no time are not told apart well enough there: some simulations are no solutions.
        timed = bool((self._staged.duration_s > 0).all())
        gives_bound = scope == "superset" or (times.exact and timed)
        found = solve_window(
            whole_problem(self._staged, times, hint, waits=scope == "superset"),
            largest_makespan=self._largest_makespan(),
            smallest_makespan=self._times.largest_below(self.bound_s) if gives_bound else 0,
            effort=effort,
            scope=scope,
            hint=self._order is None,
            on_solution=lambda sequences, messages, bound: self._on_solution(
                sequences, messages, bound if gives_bound else 0
            ),
        )
        if gives_bound:
            self._take_bound(found)
            return found.status
        return "optimal" if found.status == "infeasible" else found.status

    @property
    def is_settled(self) -> bool:
        """Whether no order is better than the best one, or than what it has to beat."""
        return self.bound_s >= self._target_s * (1 - TOLERANCE)

    @property
    def _target_s(self) -> float:
        return min(self._below_s, self._makespan_s)

    def result(self, seed: int) -> OrderResult:
        """Sum up."""
        found, settled = self._order is not None, self.is_settled
        status: Status = "optimal" if found and settled else "feasible" if found else "unknown"
        if not found and settled:
            status = "infeasible"
        return OrderResult(
            status=status,
            solver=SOLVER,
            seed=seed,
            seconds=time.monotonic() - self._began,
            objective_s=self._makespan_s if found else None,
            bound_s=self.bound_s if math.isfinite(self.bound_s) else None,
            order=self._order,
            trace=tuple(self._trace),
        )

    def _largest_makespan(self) -> int:
        if math.isfinite(self._target_s):
            return self._times.largest_below(self._target_s)
        return self._times.largest_below(self._longest_s) + 1

    def _take_bound(self, found: ModelResult) -> None:
        """No solution means that nothing is better than the target."""
        if found.status == "infeasible":
            self._raise_bound(self._target_s)
        elif found.bound is not None:
            self._raise_bound(min(self._seconds(found.bound), self._target_s))

    def _seconds(self, units: int) -> float:
        """Convert a bound, and take it down by the error within which times count as exact."""
        return self._times.seconds(units) * (1 - TOLERANCE * 1e-3)

    def _raise_bound(self, bound_s: float) -> None:
        if bound_s > self.bound_s:
            self.bound_s = bound_s
            self._note()

    def _on_solution(self, sequences: list[list[int]], messages: list[int], bound: int) -> None:
        self._raise_bound(min(self._seconds(bound), self._target_s))
        order = order_of(self._staged, sequences)
        self._consider(order)
        if messages:
            self._consider(replace(order, messages=np.array(messages, dtype=np.int64)))

    def _consider(self, order: Order) -> None:
        makespan_s = self._evaluate(order)
        if makespan_s is not None:
            self._take(order, makespan_s)

    def _take(self, order: Order, makespan_s: float) -> None:
        best_s = self._makespan_s if self._order is not None else None
        if makespan_s < self._below_s and is_better(makespan_s, best_s):
            self._order, self._makespan_s = order, makespan_s
            self._note()

    def _note(self) -> None:
        bound_s = self.bound_s if 0 < self.bound_s < math.inf else None
        makespan_s = None if self._order is None else self._makespan_s
        self._trace.append((time.monotonic() - self._began, makespan_s, bound_s))


def order_of(staged: StagedProblem, sequences: list[list[int]]) -> Order:
    """Return the order that runs these ops on each rank."""
    codes = [code for sequence in sequences for code in sequence]
    begin = np.cumsum([0, *(len(sequence) for sequence in sequences)])
    return Order(np.array(codes, dtype=np.int64), begin.astype(np.int64), staged.num_microbatches)


def starting_order(staged: StagedProblem) -> Order | None:
    """Return the best order of list scheduling's portfolio, None if it has none."""
    try:
        scheduler = ListScheduler(staged, staged.max_in_flight)
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
