"""`Explanation`: what is said of a plan, as data; tables and JSON are both made of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from octoplan.simulator import BubbleReport, Cause


@dataclass(frozen=True, slots=True)
class BoundNote:
    """A lower bound of the makespan, and why it holds; the strongest one binds."""

    name: str
    seconds: float
    because: str


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Memory of one rank: peak and limit (None: no limit), and idle seconds for want of memory."""

    rank: int
    peak_bytes: float
    limit_bytes: float | None
    waiting_s: float


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A directed pair of ranks: seconds that it is busy, and that ranks idle until its transfers arrive."""

    source: int
    destination: int
    busy_s: float
    waiting_s: float


@dataclass(frozen=True, slots=True)
class HeaviestLayer:
    """The layer with the most work on its fastest device: seconds for one microbatch, and for all of them."""

    name: str
    microbatch_s: float
    all_s: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Seconds of the chain that makes the plan as long as it is: compute by rank, transfers with their queues."""

    compute_s: tuple[float, ...]
    transfer_s: float


@dataclass(frozen=True)
class Diagnosis:
    """Where a plan's time goes.

    Attributes
    ----------
    bounds:
        Strongest first.
    links:
        Pairs of ranks that exchange tensors, those waited for most first.
    """

    makespan_s: float
    bubble_fraction: float
    bubbles: BubbleReport
    bounds: tuple[BoundNote, ...]
    critical_path: CriticalPath
    memory: tuple[RankMemory, ...]
    links: tuple[LinkUse, ...]
    heaviest_layer: HeaviestLayer


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a change would be worth.

    Attributes
    ----------
    name, change:
        A short name for scripts, and what is changed.
    makespan_s:
        Of the best plan found, for as many microbatches as the plan has; None if there is none.
    gain:
        Share of the makespan that is saved, against the better of the plan and the control.
    lower_bound_s:
        No plan of the changed problem is faster.
    """

    name: str
    change: str
    makespan_s: float | None
    gain: float | None
    lower_bound_s: float | None


@dataclass(frozen=True)
class Explanation:
    """A diagnosis, and what changes would be worth.

    Attributes
    ----------
    control:
        The same job searched again for as long as each change: what more search alone is worth.
    what_ifs:
        Largest gain first.
    """

    diagnosis: Diagnosis
    control: WhatIf
    what_ifs: tuple[WhatIf, ...]

    @property
    def reference_s(self) -> float:
        """Makespan that gains are measured against: the better of the plan and the control."""
        own = self.diagnosis.makespan_s
        return own if self.control.makespan_s is None else min(own, self.control.makespan_s)

    def to_document(self) -> dict[str, Any]:
        """Return a JSON value."""
        found = self.diagnosis
        bound = found.bounds[0]
        return {
            "makespan_s": found.makespan_s,
            "lower_bound_s": bound.seconds,
            "gap": found.makespan_s / bound.seconds - 1 if bound.seconds > 0 else None,
            "binding_bound": bound.name,
            "bubble_fraction": found.bubble_fraction,
            "bounds": [asdict(note) for note in found.bounds],
            "bubbles": _bubbles(found.bubbles),
            "critical_path": asdict(found.critical_path),
            "memory": [asdict(rank) for rank in found.memory],
            "links": [asdict(link) for link in found.links],
            "heaviest_layer": asdict(found.heaviest_layer),
            "reference_s": self.reference_s,
            "control": asdict(self.control),
            "what_ifs": [asdict(what_if) for what_if in self.what_ifs],
        }


def _bubbles(report: BubbleReport) -> dict[str, Any]:
    causes = [str(cause) for cause in Cause]
    return {
        "ranks": [
            {"idle_s": row.idle_s, **dict(zip(causes, row.by_cause_s, strict=True))}
            for row in report.rows()
            if row.rank is not None
        ],
        "worst": [
            {"cause": str(cause), "waits_for": word, "seconds": seconds}
            for cause, word, seconds in report.worst_culprits()
        ],
    }
