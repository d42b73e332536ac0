"""The upper panel: one row per rank, a box per op over the idle background, lines for transfers.

Boxes are one collection of vectors. Where they would be thinner than a pixel they would only blur, so a row
then shows, slice by slice, the share of each colour; that is an image, also in SVG, and stays small whatever
the number of ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from octoplan.report import style
from octoplan.report.layout import (
    HALF_BOX,
    POINTS_PER_INCH,
    Layout,
    caption,
    label_step,
    prepare_axes,
    side_text,
)
from octoplan.report.shares import shares_image
from octoplan.report.timeline import Timeline

_MAX_VECTOR_BOXES = 20_000
#: Boxes thinner than this (median, in points) are drawn as shares.
_THINNEST_BOX_POINTS = 1.5
#: A slice of shares is this many boxes wide, so that it holds a few rounds of the schedule.
_BOXES_PER_SLICE = 12
_NUM_SLICES = (40, 1_000)
_MAX_NUMBERS = 4_000
_MAX_TRANSFERS = 600
_FONT_POINTS = (5.0, 9.0)


def draw_ops(axes: Axes, timeline: Timeline, layout: Layout, factor: float) -> None:
    """Draw the panel; ``factor`` turns seconds into the unit of the time axis."""
    _draw_rows(axes, timeline, layout, factor)
    _draw_transfers(axes, timeline, factor)
    _draw_boxes(axes, _Boxes.of(timeline, factor), timeline, layout, factor)


@dataclass(frozen=True, slots=True)
class _Boxes:
    """The ops as arrays."""

    rank: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    microbatch: NDArray[np.int64]
    colour: NDArray[np.float64]

    @classmethod
    def of(cls, timeline: Timeline, factor: float) -> _Boxes:
        ops, levels = timeline.ops, timeline.stage_levels()
        colours = {
            key: style.op_colour(key[0], levels[key[1]]) for key in {(op.kind, op.stage) for op in ops}
        }
        return cls(
            rank=np.array([op.rank for op in ops], dtype=np.int64),
            start=np.array([op.start_s for op in ops], dtype=np.float64) * factor,
            end=np.array([op.end_s for op in ops], dtype=np.float64) * factor,
            microbatch=np.array([op.microbatch for op in ops], dtype=np.int64),
            colour=np.array([colours[op.kind, op.stage] for op in ops], dtype=np.float64).reshape(-1, 3),
        )


def _draw_rows(axes: Axes, timeline: Timeline, layout: Layout, factor: float) -> None:
    """Idle background, rank names at the left, busy share at the right."""
    prepare_axes(axes, timeline, factor)
    span = axes.get_xlim()[1]
    hatch = "////" if layout.row > 0.1 else None
    busy = timeline.busy_fractions()
    every = label_step(layout.row)
    for rank in range(timeline.num_ranks):
        axes.add_patch(
            Rectangle(
                (0, rank - HALF_BOX),
                span,
                2 * HALF_BOX,
                facecolor=style.IDLE_COLOUR,
                edgecolor=style.IDLE_HATCH_COLOUR,
                hatch=hatch,
                linewidth=0,
            )
        )
        if rank % every == 0:
            side_text(axes, rank, timeline.rank_label(rank), "left", layout.row)
            side_text(axes, rank, f"{100 * busy[rank]:.1f} %", "right", layout.row)
    caption(axes, "busy", at_right=True)


def _draw_boxes(axes: Axes, boxes: _Boxes, timeline: Timeline, layout: Layout, factor: float) -> None:
    if not len(boxes.rank):
        return
    width = (boxes.end - boxes.start) / axes.get_xlim()[1] * layout.plot_width * POINTS_PER_INCH
    if np.median(width) < _THINNEST_BOX_POINTS and timeline.makespan_s > 0:
        slices = timeline.makespan_s * factor / float(np.median(boxes.end - boxes.start)) / _BOXES_PER_SLICE
        _draw_shares(axes, timeline, int(np.clip(slices, *_NUM_SLICES)))
        return
    caption(
        axes,
        "number: microbatch"
        + ("; paler: later stages of the rank" if any(timeline.stage_levels().values()) else ""),
    )
    top, bottom = boxes.rank - HALF_BOX, boxes.rank + HALF_BOX
    corners = np.stack(
        [
            np.stack([boxes.start, boxes.start, boxes.end, boxes.end], axis=1),
            np.stack([bottom, top, top, bottom], axis=1),
        ],
        axis=2,
    )
    # A white rim tells neighbours of one colour apart, as long as it leaves something of the box.
    rim = float(np.clip(0.12 * np.median(width), 0, 0.7))
    axes.add_collection(
        PolyCollection(
            list(corners),
            facecolors=boxes.colour,
            edgecolors="white" if rim > 0.15 else "none",
            linewidths=rim,
            rasterized=len(boxes.rank) > _MAX_VECTOR_BOXES,
            zorder=2,
        ),
        autolim=False,
    )
    _draw_numbers(axes, boxes, width, layout)


def _draw_shares(axes: Axes, timeline: Timeline, num_slices: int) -> None:
    row_pixels = int(np.clip(6_000 / timeline.num_ranks, 4, 40))
    x_limits, y_limits = axes.get_xlim(), axes.get_ylim()
    axes.imshow(
        shares_image(timeline, num_slices, row_pixels),
        extent=(0, x_limits[1], timeline.num_ranks - 1 + HALF_BOX, -HALF_BOX),
        aspect="auto",
        interpolation="nearest",
        zorder=2,
    )
    axes.set_xlim(x_limits)
    axes.set_ylim(y_limits)
    caption(axes, "too many ops to draw one by one: a column shows what share of its time each kind takes")


def _draw_numbers(axes: Axes, boxes: _Boxes, width: NDArray[np.float64], layout: Layout) -> None:
    """Write the microbatch into every box that has room: in one size if that suits all, else in the box's own."""
    digits = np.char.str_len(boxes.microbatch.astype(str))
    room = np.minimum(width / (0.66 * digits + 0.35), 2 * HALF_BOX * layout.row * POINTS_PER_INCH * 0.8)
    smallest, largest = _FONT_POINTS
    size = np.clip(room if room.min() < smallest else np.full(len(room), room.min()), smallest, largest)
    fitting = np.flatnonzero(room >= smallest)
    if len(fitting) > _MAX_NUMBERS:
        return
    for op in fitting:
        axes.text(
            (boxes.start[op] + boxes.end[op]) / 2,
            boxes.rank[op],
            str(boxes.microbatch[op]),
            fontsize=float(size[op]),
            ha="center",
            va="center_baseline",
            color="white" if style.is_dark(tuple(boxes.colour[op])) else "black",
            zorder=4,
        )


def _draw_transfers(axes: Axes, timeline: Timeline, factor: float) -> None:
    """Thin lines behind the boxes from sender to receiver, while there are few enough to follow."""
    if not 0 < len(timeline.transfers) <= _MAX_TRANSFERS:
        return
    lines = []
    for message in timeline.transfers:
        down = 1 if message.destination_rank > message.source_rank else -1
        lines.append(
            [
                (message.start_s * factor, message.source_rank + down * HALF_BOX),
                (message.arrival_s * factor, message.destination_rank - down * HALF_BOX),
            ]
        )
    axes.add_collection(
        LineCollection(lines, colors=style.TEXT_COLOUR, linewidths=0.7, alpha=0.55, zorder=1.5), autolim=False
    )
