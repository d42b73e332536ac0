"""What a timeline picture shows, and `draw_timeline`, which writes one as SVG, PNG or HTML.

Times are seconds from the start of the plan, sizes are bytes. The picture knows nothing of plans and
simulators: whoever has ops with a start and an end (predicted or measured) can draw them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octoplan_schemas import InputError
from octoplan_schemas.files import write_bytes

#: File name endings that `draw_timeline` writes.
ENDINGS = (".svg", ".png", ".html")


@dataclass(frozen=True, slots=True)
class TimelineOp:
    """One compute op; ``kind`` is ``"F"``, ``"I"``, ``"W"`` or ``"B"``."""

    rank: int
    stage: int
    kind: str
    microbatch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TimelineTransfer:
    """One message; ``word`` is its SEND word."""

    source_rank: int
    destination_rank: int
    word: str
    start_s: float
    arrival_s: float


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Memory of one rank: ``bytes[i]`` holds from ``times_s[i]`` until just before ``times_s[i + 1]``."""

    times_s: tuple[float, ...]
    bytes: tuple[float, ...]
    limit_bytes: float | None
    state_bytes: float

    @property
    def peak_bytes(self) -> float:
        """The largest value of the curve."""
        return max(self.bytes, default=self.state_bytes)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that a picture shows.

    ``num_ranks`` counts rows: with ``rows_per_rank`` 2 every rank has two, such as measured and predicted. ``memory``
    has one curve per row or is empty; ``stage_labels`` has one line per stage and ``rank_labels`` one name per row
    (either may be empty).
    """

    title: str
    num_ranks: int
    makespan_s: float
    bubble_fraction: float
    ops: tuple[TimelineOp, ...]
    transfers: tuple[TimelineTransfer, ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    stage_labels: tuple[str, ...] = ()
    rank_labels: tuple[str, ...] = ()
    rows_per_rank: int = 1

    @property
    def num_microbatches(self) -> int:
        """Number of microbatches that occur."""
        return max((op.microbatch for op in self.ops), default=-1) + 1

    def rank_label(self, rank: int) -> str:
        """Name of a rank, or ``rank N``."""
        return self.rank_labels[rank] if rank < len(self.rank_labels) else f"rank {rank}"

    def busy_fractions(self) -> list[float]:
        """Share of the makespan that each rank computes."""
        busy = [0.0] * self.num_ranks
        for op in self.ops:
            busy[op.rank] += op.end_s - op.start_s
        return [seconds / self.makespan_s if self.makespan_s > 0 else 0.0 for seconds in busy]

    def stage_levels(self) -> dict[int, float]:
        """Place of each stage among those of its rank: 0 for the first in model order, 1 for the last."""
        stages: list[set[int]] = [set() for _ in range(self.num_ranks)]
        for op in self.ops:
            stages[op.rank].add(op.stage)
        return {
            stage: position / max(len(held) - 1, 1)
            for held in stages
            for position, stage in enumerate(sorted(held))
        }


def draw_timeline(timeline: Timeline, path: str | Path) -> None:
    """Write a picture of the timeline; the name's ending chooses the format.

    Parameters
    ----------
    timeline:
        What to draw.
    path:
        ``.svg`` and ``.png`` are still pictures; ``.html`` is one self-contained page that can be zoomed,
        dragged and asked about each op. The file is either whole or not there.

    Raises
    ------
    InputError
        If the ending is none of these, or the file cannot be written.
    """
    ending = require_known_ending(path)
    write_bytes(path, _render(timeline, ending))


def require_known_ending(path: str | Path) -> str:
    """Return the lower-case ending of a picture's name; raise `InputError` if it is none of `ENDINGS`."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        found = f"the ending {ending!r}" if ending else "a name without an ending"
        raise InputError(f"cannot draw to {found}; end the name in {', '.join(ENDINGS)}", source=str(path))
    return ending


def _render(timeline: Timeline, ending: str) -> bytes:
    # Imported when needed: matplotlib takes longer to load than everything else here.
    if ending == ".html":
        from octoplan.report.html import timeline_page

        return timeline_page(timeline).encode("utf-8")
    from octoplan.report.figure import figure_bytes, timeline_figure

    return figure_bytes(timeline_figure(timeline), ending.removeprefix("."))
