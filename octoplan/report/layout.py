"""Sizes of the still picture's parts, and the rows and texts that its panels share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from octoplan.report import style
from octoplan.report.timeline import Timeline

POINTS_PER_INCH = 72
#: Half the height of a row's box, in rows.
HALF_BOX = 0.41
_MAX_STAGE_LABELS = 48


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes in inches."""

    width: float
    left: float
    right: float
    header: float
    row: float
    memory_row: float
    memory_gap: float
    footer: float
    num_ranks: int
    num_label_rows: int
    num_label_columns: int

    @classmethod
    def of(cls, timeline: Timeline) -> Layout:
        ranks = timeline.num_ranks
        per_rank = len(timeline.ops) / ranks
        labels = timeline.stage_labels if len(timeline.stage_labels) <= _MAX_STAGE_LABELS else ()
        columns = max(1, min(8, int(13 / (0.075 * max(map(len, labels), default=1) + 0.3))))
        label_rows = -(-len(labels) // columns)
        widest = max(len(timeline.rank_label(rank)) for rank in range(ranks))
        # Wide enough for a number in every box, unless there are too many anyhow.
        width = float(np.clip(0.22 * per_rank, 15.0, 24.0)) if per_rank < 400 else 15.0
        return cls(
            width=width,
            left=min(2.6, 0.35 + 0.075 * widest),
            right=1.45 if timeline.memory else 0.85,
            header=0.88,
            row=float(np.clip(9.0 / ranks, 0.012, width / 30)),
            memory_row=float(np.clip(10.0 / ranks, 0.012, width / 33)) if timeline.memory else 0.0,
            memory_gap=0.62 if timeline.memory else 0.0,
            footer=0.5 + (0.17 * label_rows + 0.1 if labels else 0.0),
            num_ranks=ranks,
            num_label_rows=label_rows,
            num_label_columns=columns,
        )

    @property
    def height(self) -> float:
        rows = self.num_ranks * (self.row + self.memory_row)
        return self.header + rows + self.memory_gap + self.footer

    @property
    def plot_width(self) -> float:
        return self.width - self.left - self.right

    def box(self, bottom: float, height: float) -> tuple[float, float, float, float]:
        """Turn inches from the bottom into matplotlib's fractions of the figure."""
        width, total = self.width, self.height
        return self.left / width, bottom / total, self.plot_width / width, height / total


def prepare_axes(axes: Axes, timeline: Timeline, factor: float) -> None:
    span = timeline.makespan_s * factor or 1.0
    axes.set_xlim(0, span)
    axes.set_ylim(timeline.num_ranks - 0.5, -0.5)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=8, colors=style.TEXT_COLOUR, length=3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(style.MUTED_COLOUR)


def label_step(row_inches: float) -> int:
    """Every how many rows a label has room."""
    return max(1, int(np.ceil(0.11 / row_inches)))


def side_text(axes: Axes, row: float, text: str, side: str, row_inches: float) -> None:
    axes.annotate(
        style.printable(text),
        xy=(0 if side == "left" else 1, row),
        xycoords=("axes fraction", "data"),
        xytext=(-6 if side == "left" else 6, 0),
        textcoords="offset points",
        ha="right" if side == "left" else "left",
        va="center",
        fontsize=float(np.clip(row_inches * POINTS_PER_INCH * 0.55, 6, 9)),
        color=style.TEXT_COLOUR,
        annotation_clip=False,
        parse_math=False,
    )


def caption(axes: Axes, text: str, *, at_right: bool = False) -> None:
    """Small text above the rows: at their left end, or above the column at their right."""
    axes.annotate(
        text,
        xy=(1, 1) if at_right else (0, 1),
        xycoords="axes fraction",
        xytext=(6, 3) if at_right else (0, 3),
        textcoords="offset points",
        fontsize=7.5,
        color=style.MUTED_COLOUR,
        annotation_clip=False,
    )
