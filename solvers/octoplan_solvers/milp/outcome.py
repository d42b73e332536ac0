"""What one run of a MILP solver says."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan_solvers.result import Status


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status and bound of the objective of one run; the model's variables hold the solution."""

    status: Status
    bound: float | None


def finite(bound: float) -> float | None:
    """Return a bound, or None where the solver's number stands for none."""
    return bound if abs(bound) < 1e30 else None
