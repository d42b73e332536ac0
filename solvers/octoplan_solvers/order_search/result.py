"""What every search for an order takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from octoplan_solvers.order import Order
from octoplan_solvers.result import Status

#: Prices an order by exact simulation: makespan in seconds, None if it breaks a memory limit.
Evaluate = Callable[[Order], float | None]

#: Relative difference below which an objective counts as equal to a bound, or no better than another objective.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class OrderResult:
    """Outcome of one search; an absent objective or bound is None, never 0.

    The bound holds for every order of the same partition and placement, and for every order of its transfers.
    """

    status: Status
    solver: str
    seed: int
    seconds: float
    #: Seconds of makespan of `order`, confirmed by `Evaluate`.
    objective_s: float | None = None
    #: No order has a smaller makespan.
    bound_s: float | None = None
    order: Order | None = None
    #: ``(seconds, objective, bound)`` whenever one of them improved; None where absent.
    trace: tuple[tuple[float, float | None, float | None], ...] = field(default=())


def is_better(makespan_s: float | None, best_s: float | None) -> bool:
    """Tell whether a confirmed makespan improves on the best one by more than rounding."""
    if makespan_s is None:
        return False
    return best_s is None or makespan_s < best_s * (1 - TOLERANCE)
