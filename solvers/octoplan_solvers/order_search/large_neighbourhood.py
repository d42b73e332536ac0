"""`improve_order`: large-neighbourhood search. CP-SAT re-orders a part of a schedule, the rest stays as it is."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np

from octoplan_solvers.order import Order
from octoplan_solvers.order_search.exact import require_all_ops
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.model import Effort, ModelResult, solve_window
from octoplan_solvers.order_search.neighbourhoods import KINDS, Schedule, draw_window
from octoplan_solvers.order_search.result import Evaluate, OrderResult, is_better
from octoplan_solvers.order_search.window import Window, replace_inside, sort_by_microbatch, time_integers
from octoplan_solvers.staged import StagedProblem

SOLVER = "large-neighbourhood"
#: Seconds (or deterministic seconds) for one window.
_WINDOW_S = 1.0
#: Ops that may move: at first, and at least.
_FIRST_SIZE, _LEAST_SIZE = 60, 20
#: Where times are rounded, a window must promise this relative gain.
_LEAST_GAIN = 1e-6


def improve_order(
    staged: StagedProblem,
    order: Order,
    evaluate: Evaluate,
    *,
    time_limit_s: float | None = None,
    iterations: int | None = None,
    seed: int = 0,
    num_workers: int = 1,
    stop: threading.Event | None = None,
) -> OrderResult:
    """Shorten an order, window by window, for a time or a number of windows.

    Parameters
    ----------
    order:
        Must keep all limits.
    evaluate:
        Exact simulation; only improvements that it confirms are accepted.
    time_limit_s, iterations:
        At least one of them. With ``iterations`` alone and one worker, the same seed gives the same order: CP-SAT
        then counts deterministic time.

    Raises
    ------
    ValueError
        If neither limit is given, or the order is not complete, or breaks a limit.
    """
    if time_limit_s is None and iterations is None:
        raise ValueError("time_limit_s or iterations must be given")
    search = _Search(staged, require_all_ops(staged, order), evaluate, seed)
    done = 0
    while not search.is_optimal and (iterations is None or done < iterations):
        left = _WINDOW_S if time_limit_s is None else min(_WINDOW_S, time_limit_s - search.seconds())
        if left <= 0 or (stop is not None and stop.is_set()):
            break
        search.step(Effort(left, seed + done, num_workers, time_limit_s is None, stop))
        done += 1
    return search.result(seed)


@dataclass
class _Sizes:
    """How many ops may move, by kind of neighbourhood: more after a proof that nothing is better, fewer if unsolved."""

    size: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, float(_FIRST_SIZE)))

    def adapt(self, kind: str, found: ModelResult, most: int) -> None:
        factor = {"infeasible": 1.25, "optimal": 1.1, "feasible": 1.0, "unknown": 0.8}[found.status]
        self.size[kind] = min(max(self.size[kind] * factor, _LEAST_SIZE), most)


class _Search:
    def __init__(self, staged: StagedProblem, order: Order, evaluate: Evaluate, seed: int) -> None:
        self._began = time.monotonic()
        self._staged = staged
        self._evaluate = evaluate
        makespan_s = evaluate(order)
        if makespan_s is None:
            raise ValueError("the order to improve must keep every memory limit")
        self._order, self._makespan_s = order, makespan_s
        self._times = IntegerTimes.of(staged, makespan_s)
        self._trace: list[tuple[float, float | None, float | None]] = [(self.seconds(), makespan_s, None)]
        self._random = np.random.default_rng(seed)
        self._sizes = _Sizes()
        self.is_optimal = False
        self._accept(sort_by_microbatch(order))

    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began

    def step(self, effort: Effort) -> None:
        """Try one window."""
        timing = time_integers(self._staged, self._times, self._order)
        schedule = Schedule(self._staged, self._times, self._order, timing)
        kind = KINDS[self._random.integers(len(KINDS))]
        num_free = min(int(self._sizes.size[kind]), len(self._order.ops))
        window = draw_window(schedule, kind, num_free, self._random)
        found = solve_window(window, largest_makespan=self._target(), effort=effort, hint=False)
        if found.sequences is not None:
            self._accept(replace_inside(self._order, window, found.sequences))
        self._sizes.adapt(kind, found, len(self._order.ops))
        self.is_optimal = found.status == "infeasible" and self._is_everything(window)

    def _target(self) -> int:
        gain = 0.0 if self._times.exact else _LEAST_GAIN
        return self._times.largest_below(self._makespan_s * (1 - gain))

    def _is_everything(self, window: Window) -> bool:
        """A window of all ops without a better solution proves the order optimal."""
        return self._times.exact and window.num_free == window.is_free.size

    def _accept(self, order: Order) -> None:
        makespan_s = self._evaluate(order)
        if makespan_s is not None and is_better(makespan_s, self._makespan_s):
            self._order, self._makespan_s = order, makespan_s
            self._trace.append((self.seconds(), makespan_s, None))

    def result(self, seed: int) -> OrderResult:
        """Sum up."""
        return OrderResult(
            status="optimal" if self.is_optimal else "feasible",
            solver=SOLVER,
            seed=seed,
            seconds=self.seconds(),
            objective_s=self._makespan_s,
            bound_s=self._makespan_s * (1 - 1e-12) if self.is_optimal else None,
            order=self._order,
            trace=tuple(self._trace),
        )
