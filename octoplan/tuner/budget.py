"""How long a search may go on: seconds, or simulated candidates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Priced(Protocol):
    """Anything with a makespan."""

    @property
    def makespan_s(self) -> float:
        """Seconds."""


@dataclass
class Budget:
    """Counts down seconds, or evaluations where their number is given (then the search is reproducible).

    Parameters
    ----------
    seconds:
        Limit in seconds from ``started``.
    max_evaluations:
        Limit in evaluations; seconds do not count then.
    should_stop:
        Asked between chunks of work; True ends the search.
    """

    seconds: float
    max_evaluations: int | None = None
    should_stop: Callable[[], bool] = lambda: False
    started: float = field(default_factory=time.monotonic)
    evaluations: int = 0
    #: What the budget is being spent on, for whoever watches.
    phase: str = "search"

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def is_late(self, share: float) -> bool:
        """True if a share of the seconds is over, where they count, or the search shall end."""
        if self.should_stop():
            return True
        return self.max_evaluations is None and self.elapsed_s >= share * self.seconds

    def spent(self) -> float:
        """Return how much is used up: 0 at the start, 1 or more at the end."""
        if self.should_stop():
            return 1.0
        if self.max_evaluations is not None:
            return self.evaluations / self.max_evaluations
        return self.elapsed_s / self.seconds if self.seconds > 0 else 1.0
