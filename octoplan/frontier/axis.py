"""`Axis`: how a job measures memory. A value on it is what ``--memory-limit`` would have to be."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from octoplan.compiler import balanced_1f1b_dynamic_peak, device_limits
from octoplan.memory_limit import MemoryLimit
from octoplan.simulator import Simulation
from octoplan_schemas import Cluster, ModelGraph
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import PipelineProblem

#: Digits behind the point of a percentage, and of a multiple of 1F1B's peak.
_DIGITS = 4


@dataclass(frozen=True)
class Axis:
    """Memory in the unit of the job's limit.

    Attributes
    ----------
    kind:
        ``share``: largest share of a device's memory that a rank's peak takes. ``bytes``: largest peak of a rank.
        ``1f1b``: largest peak without state, as a multiple of what the balanced 1F1B plan needs.
    unit_bytes:
        ``(R,)`` bytes that the value 1 allows each rank.
    """

    kind: Literal["share", "bytes", "1f1b"]
    unit_bytes: FloatArray

    @classmethod
    def of(cls, limit: MemoryLimit, problem: PipelineProblem, model: ModelGraph, cluster: Cluster) -> Axis:
        """Return the axis of a job's limit; where there is none, memory is a share of the device's."""
        if limit.kind == "1f1b":
            peak = balanced_1f1b_dynamic_peak(problem, model)
            return cls("1f1b", np.full(problem.num_ranks, peak))
        if limit.kind == "bytes":
            return cls("bytes", np.ones(problem.num_ranks))
        return cls("share", device_limits(cluster, MemoryLimit("share", 1.0)))

    def limited(self, problem: PipelineProblem, value: float) -> PipelineProblem:
        """Return the problem under another limit; an infinite one lifts it."""
        free = np.full(problem.num_ranks, np.inf)
        if not math.isfinite(value):
            return replace(problem, memory_limit_bytes=free, dynamic_limit_bytes=math.inf)
        if self.kind == "1f1b":
            dynamic = value * float(self.unit_bytes[0])
            return replace(problem, memory_limit_bytes=free, dynamic_limit_bytes=dynamic)
        return replace(problem, memory_limit_bytes=value * self.unit_bytes, dynamic_limit_bytes=math.inf)

    def used(self, simulation: Simulation) -> float:
        """Return the smallest limit that a plan keeps."""
        peak = simulation.memory.peak_bytes
        if self.kind == "1f1b":
            peak = peak - simulation.schedule.staged.state_bytes
        unit = self.unit_bytes
        return float(np.divide(peak, unit, out=np.zeros_like(peak), where=unit > 0).max())

    def rounded_up(self, value: float) -> float:
        """Return the next value that has a short text."""
        if self.kind == "bytes":
            return float(math.ceil(value))
        step = 10.0 ** -(_DIGITS + 2 if self.kind == "share" else _DIGITS)
        return math.ceil(value / step - 1e-9) * step

    def text(self, value: float) -> str:
        """Return a rounded value as ``--memory-limit`` takes it."""
        if not math.isfinite(value):
            return "none"
        if self.kind == "bytes":
            return str(int(value))
        number = f"{100 * value if self.kind == 'share' else value:.{_DIGITS}f}"
        return f"{number}%" if self.kind == "share" else f"1f1b:{number}"
