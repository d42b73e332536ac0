"""`Frontier`: points of memory and makespan, each with its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octoplan_schemas import Plan

FORMAT = "octoplan.frontier/1"


@dataclass(frozen=True)
class FrontierPoint:
    """A plan that is faster than every other that was found to need no more memory.

    Attributes
    ----------
    memory:
        What the plan needs, in the frontier's unit.
    memory_limit:
        The same as ``--memory-limit`` takes it.
    lower_bound_s:
        No plan that needs no more memory is faster.
    origin:
        ``octoplan``, or the baseline that it is.
    """

    memory: float
    memory_limit: str
    makespan_s: float
    lower_bound_s: float
    origin: str
    plan: Plan

    @property
    def peak_bytes(self) -> float:
        """Largest peak of a rank."""
        return max(rank.peak_bytes for rank in self.plan.predicted.ranks)

    @property
    def dynamic_peak_bytes(self) -> float:
        """Largest peak of a rank without its state."""
        return max(rank.peak_bytes - rank.state_bytes for rank in self.plan.predicted.ranks)


@dataclass(frozen=True, slots=True)
class BaselinePoint:
    """Memory and makespan of a baseline, to compare with."""

    strategy: str
    memory: float
    makespan_s: float


@dataclass(frozen=True)
class Frontier:
    """The trade-off of one job.

    Attributes
    ----------
    unit:
        Of memory: ``share`` of a device, ``bytes``, or multiples of balanced ``1f1b``'s peak without state.
    job_limit:
        The job's own limit in that unit; None: no limit.
    plan:
        What the job asked for: the fastest plan within its own limit.
    points:
        Least memory first; makespans fall from one to the next.
    """

    unit: str
    job_limit: float | None
    plan: Plan
    points: tuple[FrontierPoint, ...]
    baselines: tuple[BaselinePoint, ...]

    def to_document(self, plan_files: list[str] | None = None) -> dict[str, Any]:
        """Return a JSON value.

        Parameters
        ----------
        plan_files:
            Where the points' plans are, in the order of the points.
        """
        rows = [row(point) for point in self.points]
        for entry, name in zip(rows, plan_files or [], strict=False):
            entry["plan"] = name
        return {
            "format": FORMAT,
            "model": self.plan.model.model_dump(mode="json"),
            "cluster": self.plan.cluster.model_dump(mode="json"),
            "job": self.plan.job.model_dump(mode="json"),
            "unit": self.unit,
            "job_limit": self.job_limit,
            "points": rows,
            "baselines": [
                {"strategy": one.strategy, "memory": one.memory, "makespan_s": one.makespan_s}
                for one in self.baselines
            ],
        }


def row(point: FrontierPoint) -> dict[str, Any]:
    """Return one point as plain values."""
    bound = point.lower_bound_s
    return {
        "memory": point.memory,
        "memory_limit": point.memory_limit,
        "makespan_s": point.makespan_s,
        "lower_bound_s": bound,
        "gap": point.makespan_s / bound - 1 if bound > 0 else None,
        "peak_bytes": point.peak_bytes,
        "dynamic_peak_bytes": point.dynamic_peak_bytes,
        "bubble_fraction": point.plan.predicted.bubble_fraction,
        "num_stages": len(point.plan.stages),
        "origin": point.origin,
    }
