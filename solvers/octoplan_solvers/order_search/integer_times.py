"""Times and bytes as integers, for CP-SAT: exact where the numbers allow it, else rounded so that bounds hold."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.staged import StagedProblem

#: A horizon has at most so many units: what CP-SAT multiplies it with must stay below 2**63.
_MAX_HORIZON = 2**36
#: A rank's memory has at most so many units.
_MAX_BYTES = 2**20
#: Relative error within which a time counts as a whole number of units.
_EXACT = 1e-12


@dataclass(frozen=True)
class IntegerTimes:
    """Durations, transfers and latencies of a `StagedProblem` in whole units.

    Where all times are multiples of one decimal unit, that is the unit and nothing is lost (``exact``). Otherwise
    times are rounded down. Take any schedule and round its start times down: as ``floor(a + b) >= floor(a) +
    floor(b)``, all precedences still hold, so the rounded problem has a schedule that is no longer. Its makespan is
    a lower bound. A rounded interval ``[floor(start), floor(end))`` covers an instant only if the real one covers
    the end of that unit, so limits on memory hold too, for intervals that begin where an op starts. What begins at
    an op's end or at an arrival is counted from the start plus the duration rounded *up* (``*_ceil``), which is
    never before the rounded end.
    """

    unit_s: Fraction
    exact: bool
    #: ``(S, 4)`` F, I, W, B.
    duration: IntArray
    duration_ceil: IntArray
    #: ``(E, 2)``.
    transfer: IntArray
    latency: IntArray
    #: ``(E, 2)`` transfer and latency together, rounded up.
    delay_ceil: IntArray

    @classmethod
    def of(cls, staged: StagedProblem, horizon_s: float) -> IntegerTimes:
        """Choose the unit for makespans of about ``horizon_s`` seconds."""
        values = [staged.duration_s.ravel(), staged.transfer_s.ravel(), staged.latency_s.ravel()]
        positive = np.concatenate(values)
        unit = _common_unit(positive[positive > 0], horizon_s)
        if unit is not None:
            return cls._nearest(staged, unit, exact=True)
        unit = Fraction(max(horizon_s, 1e-300)) / _MAX_HORIZON
        return cls(
            unit_s=unit,
            exact=False,
            duration=_floor(staged.duration_s, unit),
            duration_ceil=_ceil(staged.duration_s, unit),
            transfer=_floor(staged.transfer_s, unit),
            latency=_floor(staged.latency_s, unit),
            delay_ceil=_ceil(staged.transfer_s + staged.latency_s, unit),
        )

    @classmethod
    def _nearest(cls, staged: StagedProblem, unit: Fraction, *, exact: bool) -> IntegerTimes:
        duration, transfer, latency = (
            np.rint(seconds / float(unit)).astype(np.int64)
            for seconds in (staged.duration_s, staged.transfer_s, staged.latency_s)
        )
        return cls(unit, exact, duration, duration, transfer, latency, transfer + latency)

    def rounded_to_nearest(self, staged: StagedProblem) -> IntegerTimes:
        """Return the closest times in the same unit: good for finding orders, but no bound comes from them."""
        return self if self.exact else IntegerTimes._nearest(staged, self.unit_s, exact=False)

    def seconds(self, units: float) -> float:
        """Convert a number of units."""
        return float(units * self.unit_s) if isinstance(units, int) else float(units) * float(self.unit_s)

    def largest_below(self, seconds: float) -> int:
        """Return the largest whole makespan that an order better than ``seconds`` can have."""
        if self.exact:
            return int(np.ceil(seconds / float(self.unit_s) * (1 - _EXACT) - 1e-6)) - 1
        return int(np.floor(seconds / float(self.unit_s) * (1 + _EXACT)))


def _common_unit(values: FloatArray, horizon_s: float) -> Fraction | None:
    """Return the largest unit of which all values are multiples, if there is a decimal one that is not too fine."""
    for digits in range(-3, 16):
        scale = 10.0**digits
        if horizon_s * scale > _MAX_HORIZON:
            return None
        whole = np.rint(values * scale)
        if (np.abs(values * scale - whole) <= _EXACT * whole).all():
            common = int(np.gcd.reduce(whole.astype(np.int64))) if len(whole) else 1
            return Fraction(common) / Fraction(10) ** digits
    return None


def _floor(seconds: FloatArray, unit: Fraction) -> IntArray:
    # Lowered by a rounding error first, so that a quotient just above an integer is not an overestimate.
    return np.floor(seconds / float(unit) * (1 - _EXACT)).astype(np.int64)


def _ceil(seconds: FloatArray, unit: Fraction) -> IntArray:
    return np.ceil(seconds / float(unit) * (1 + _EXACT)).astype(np.int64)


@dataclass(frozen=True)
class RankMemory:
    """Byte counts of one rank in whole units: exact, or demands and capacity rounded down."""

    exact: bool
    capacity: int
    unit: float

    @classmethod
    def of(cls, staged: StagedProblem, rank: int) -> RankMemory:
        """Choose the unit for a rank with a finite limit."""
        limit = float(staged.memory_limit_bytes[rank])
        room = limit - float(staged.state_bytes[rank]) + 2 * MEMORY_TOLERANCE * limit
        sizes = _sizes_on(staged, rank)
        unit = max(room, 0.0) / _MAX_BYTES or 1.0
        exact = False
        if len(sizes) and (sizes == np.rint(sizes)).all() and sizes.max() < 2**53:
            common = float(np.gcd.reduce(sizes.astype(np.int64)))
            if common >= unit:
                unit, exact = common, True
        return cls(exact, int(np.floor(room / unit)), unit)

    def units(self, size: float) -> int:
        """Round a size down to whole units."""
        return int(np.floor(size / self.unit * (1 + _EXACT)) if self.exact else np.floor(size / self.unit))


def _sizes_on(staged: StagedProblem, rank: int) -> FloatArray:
    """Return the positive sizes that come and go on a rank."""
    own = staged.stage_rank == rank
    crossing = staged.edge_crosses & (own[staged.edge_source] | own[staged.edge_destination])
    sizes = np.concatenate(
        [
            staged.activation_bytes[own],
            staged.freed_at_input_bytes[own],
            staged.stash_bytes[own],
            staged.workspace_bytes[own],
            staged.edge_bytes[crossing],
        ]
    )
    return sizes[sizes > 0]
