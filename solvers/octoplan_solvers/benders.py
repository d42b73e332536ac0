"""Logic-based Benders decomposition: placement by a master problem, orders by whoever prices its solutions.

The master minimises a lower bound of the makespan over the assignments that are not priced yet; each of its solutions
is priced (best order found, and a lower bound of every order) and then excluded. The bound of the whole problem is
the smaller of the master's bound and of the bounds of what is excluded: it only rises. The incumbent only falls. They
meet: proved optimal. Hooker and Ottosson, "Logic-based Benders decomposition", Mathematical Programming 96 (2003).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from octoplan_solvers.bounds import lower_bounds
from octoplan_solvers.cp_sat import solve_placement
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import Status
from octoplan_solvers.stopping import is_stopped

#: Share of the makespan within which bound and incumbent count as equal.
GAP_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Price:
    """What is known of the orders of one assignment, in seconds.

    Attributes
    ----------
    makespan_s:
        Of the best order found; infinite if none keeps the memory limits.
    bound_s:
        No order of the assignment is shorter.
    """

    makespan_s: float
    bound_s: float


#: Called with an assignment and the seconds that an order must beat to be of use.
PriceFunction = Callable[[Assignment, float], Price]


@dataclass(frozen=True, slots=True)
class BendersResult:
    """Outcome of the loop; ``trace`` has ``(seconds, incumbent, bound)`` after every priced assignment."""

    status: Status
    assignment: Assignment | None
    makespan_s: float | None
    bound_s: float
    num_priced: int
    seconds: float
    trace: tuple[tuple[float, float, float], ...] = field(default=())


@dataclass
class _State:
    """Incumbent, bound, and what has been priced."""

    bound_s: float
    incumbent_s: float
    assignment: Assignment | None
    excluded: list[Assignment] = field(default_factory=list)
    excluded_bound_s: float = math.inf
    trace: list[tuple[float, float, float]] = field(default_factory=list)

    def raise_bound(self, master_bound_s: float) -> None:
        """Every assignment is either in the master or excluded."""
        self.bound_s = max(self.bound_s, min(master_bound_s, self.excluded_bound_s, self.incumbent_s))

    @property
    def is_proved(self) -> bool:
        """True once bound and incumbent meet."""
        return self.bound_s >= self.incumbent_s * (1 - GAP_TOLERANCE)


def solve_by_benders(
    problem: PipelineProblem,
    price: PriceFunction,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    incumbent_s: float = math.inf,
    incumbent: Assignment | None = None,
    max_priced: int | None = None,
    stop: threading.Event | None = None,
    on_progress: Callable[[float, float], None] = lambda incumbent_s, bound_s: None,
) -> BendersResult:
    """Alternate between master and pricing until bound and incumbent meet, or the time is up.

    Parameters
    ----------
    price:
        Prices one assignment; called once for each.
    incumbent_s, incumbent:
        A makespan that some plan is known to reach, and its assignment.
    max_priced:
        Stop after so many assignments.
    stop:
        Once set, the loop ends soon with what it has.
    on_progress:
        Told incumbent and bound after every step.
    """
    started = time.monotonic()
    state = _State(lower_bounds(problem)[0].seconds, incumbent_s, incumbent)
    exhausted = False
    while not (state.is_proved or exhausted or is_stopped(stop)):
        left = time_limit_s - (time.monotonic() - started)
        if left <= 0 or (max_priced is not None and len(state.excluded) >= max_priced):
            break
        exhausted = not _step(problem, price, state, left, seed, num_workers, stop)
        state.trace.append((time.monotonic() - started, state.incumbent_s, state.bound_s))
        on_progress(state.incumbent_s, state.bound_s)
    return _result(state, time.monotonic() - started)


def _step(
    problem: PipelineProblem,
    price: PriceFunction,
    state: _State,
    left_s: float,
    seed: int,
    num_workers: int,
    stop: threading.Event | None,
) -> bool:
    """Solve the master once and price its solution; return False if it has no further solution to offer."""
    finite = math.isfinite(state.incumbent_s)
    master = solve_placement(
        problem,
        time_limit_s=left_s,
        seed=seed,
        num_workers=num_workers,
        stop=stop,
        hint=None if state.excluded else state.assignment,
        excluded=state.excluded,
        below_s=state.incumbent_s * (1 - GAP_TOLERANCE) if finite else None,
    )
    if master.status == "infeasible":
        state.raise_bound(math.inf)
        return False
    if master.bound_s is not None:
        state.raise_bound(master.bound_s)
    if master.assignment is None:
        return False
    priced = price(master.assignment, state.incumbent_s)
    state.excluded.append(master.assignment)
    state.excluded_bound_s = min(state.excluded_bound_s, priced.bound_s)
    if priced.makespan_s < state.incumbent_s:
        state.incumbent_s, state.assignment = priced.makespan_s, master.assignment
    return True


def _result(state: _State, seconds: float) -> BendersResult:
    found = math.isfinite(state.incumbent_s)
    status: Status = "feasible" if found else "unknown"
    if found and state.is_proved:
        status = "optimal"
    elif math.isinf(state.bound_s):
        status = "infeasible"
    return BendersResult(
        status=status,
        assignment=state.assignment,
        makespan_s=state.incumbent_s if found else None,
        bound_s=min(state.bound_s, state.incumbent_s),
        num_priced=len(state.excluded),
        seconds=seconds,
        trace=tuple(state.trace),
    )
