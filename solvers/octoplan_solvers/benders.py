"""Logic-based Benders decomposition: placement by a master problem, orders by whoever prices its solutions.

The master proposes assignments in the order of a lower bound of their makespans; each is priced (best order found, and
a lower bound of every order) with little effort at first. Those that stay open are priced again with more. The bound of
the whole problem is the smaller of the master's bound and of the bounds of what is priced: it only rises. The incumbent
only falls. They meet: proved optimal. Hooker and Ottosson, "Logic-based Benders decomposition", Mathematical
Programming 96 (2003).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from octoplan_solvers.benders_master import Master, choose_master
from octoplan_solvers.bounds import lower_bounds
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


#: Called with an assignment, the seconds that an order must beat to be of use, and the effort: 0, then 1, and so on.
PriceFunction = Callable[[Assignment, float, int], Price]
#: Effort beyond which an assignment is left open.
_MOST_EFFORT = 12


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


@dataclass(frozen=True, slots=True)
class _Open:
    """An assignment of which an order may still be better than the incumbent."""

    assignment: Assignment
    bound_s: float
    effort: int


@dataclass
class _State:
    """Incumbent and bound, and what has been priced."""

    bound_s: float
    incumbent_s: float
    assignment: Assignment | None
    #: Least bound of what the master has not proposed, of what is settled, and what is not.
    master_bound_s: float = 0.0
    settled_bound_s: float = math.inf
    open: list[_Open] = field(default_factory=list)
    num_priced: int = 0
    #: Seconds spent on what was new, and on what had been priced before.
    first_s: float = 0.0
    again_s: float = 0.0
    trace: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def target_s(self) -> float:
        """What an order has to beat."""
        return self.incumbent_s * (1 - GAP_TOLERANCE)

    @property
    def is_proved(self) -> bool:
        """True once bound and incumbent meet."""
        return self.bound_s >= self.target_s

    def record(self, entry: _Open, makespan_s: float) -> None:
        """Take in a price."""
        if makespan_s < self.incumbent_s:
            self.incumbent_s, self.assignment = makespan_s, entry.assignment
        self.open.append(entry)
        self.raise_bound()

    def raise_bound(self) -> None:
        """Every assignment is in the master, settled, or open."""
        for entry in self.open:
            if entry.bound_s >= self.target_s:
                self.settled_bound_s = min(self.settled_bound_s, entry.bound_s)
        self.open = [entry for entry in self.open if entry.bound_s < self.target_s]
        weakest_s = min((entry.bound_s for entry in self.open), default=math.inf)
        least_s = min(self.master_bound_s, self.settled_bound_s, weakest_s, self.incumbent_s)
        self.bound_s = max(self.bound_s, least_s)

    def take_open(self) -> _Open | None:
        """Remove and return what to price again: of those with the least effort so far the weakest one.

        As long as the master has more to propose, only if that could raise the bound, and in half of the time.
        """
        ready = [entry for entry in self.open if entry.effort <= _MOST_EFFORT]
        if math.isfinite(self.master_bound_s):
            if self.again_s > self.first_s:
                return None
            ready = [entry for entry in ready if entry.bound_s < self.master_bound_s]
        if not ready:
            return None
        chosen = min(ready, key=lambda entry: (entry.effort, entry.bound_s))
        self.open.remove(chosen)
        return chosen


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
        Prices one assignment; called again with more effort as long as it is open.
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
    if is_stopped(stop):
        return _result(state, time.monotonic() - started)
    master = choose_master(problem, seed=seed, num_workers=num_workers, hint=incumbent, stop=stop)
    while not (state.is_proved or is_stopped(stop)):
        left = time_limit_s - (time.monotonic() - started)
        if left <= 0 or (max_priced is not None and state.num_priced >= max_priced):
            break
        if not _step(master, price, state, left):
            break
        state.trace.append((time.monotonic() - started, state.incumbent_s, state.bound_s))
        on_progress(state.incumbent_s, state.bound_s)
    return _result(state, time.monotonic() - started)


def _step(master: Master, price: PriceFunction, state: _State, left_s: float) -> bool:
    """Price a new assignment or an open one; return False if there is neither, or no time for it."""
    began = time.monotonic()
    entry = state.take_open()
    if entry is not None:
        _price(price, state, entry)
        state.again_s += time.monotonic() - began
        return True
    if math.isinf(state.master_bound_s):
        return False
    proposal = master.propose(state.target_s, left_s)
    state.master_bound_s = max(state.master_bound_s, proposal.bound_s)
    state.raise_bound()
    if proposal.assignment is None:
        return math.isinf(proposal.bound_s)
    state.num_priced += 1
    _price(price, state, _Open(proposal.assignment, proposal.bound_s, 0))
    state.first_s += time.monotonic() - began
    return True


def _price(price: PriceFunction, state: _State, entry: _Open) -> None:
    priced = price(entry.assignment, state.incumbent_s, entry.effort)
    bound_s = max(entry.bound_s, priced.bound_s)
    state.record(_Open(entry.assignment, bound_s, entry.effort + 1), priced.makespan_s)


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
        num_priced=state.num_priced,
        seconds=seconds,
        trace=tuple(state.trace),
    )
