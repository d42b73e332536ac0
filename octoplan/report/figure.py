"""The still picture: header and legend, ops by rank, memory by rank, and the list of stages."""

from __future__ import annotations

import io
import warnings

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from octoplan.report import style
from octoplan.report.layout import Layout
from octoplan.report.memory_panel import draw_memory
from octoplan.report.ops_panel import draw_ops
from octoplan.report.timeline import Timeline

_DPI = 130


def timeline_figure(timeline: Timeline) -> Figure:
    """Draw the timeline on a figure of its own; no global state of matplotlib is touched."""
    layout = Layout.of(timeline)
    factor, unit = style.time_unit(timeline.makespan_s)
    figure = Figure(figsize=(layout.width, layout.height), dpi=_DPI, facecolor="white")
    bottom = layout.footer + layout.num_ranks * layout.memory_row + layout.memory_gap
    axes = figure.add_axes(layout.box(bottom, layout.num_ranks * layout.row))
    draw_ops(axes, timeline, layout, factor)
    lowest = axes
    if timeline.memory:
        lowest = figure.add_axes(layout.box(layout.footer, layout.num_ranks * layout.memory_row))
        draw_memory(lowest, timeline, layout, factor)
    lowest.set_xlabel(f"time ({unit})", color=style.TEXT_COLOUR, fontsize=9, labelpad=2)
    _draw_header(figure, timeline, layout)
    _draw_stage_labels(figure, timeline, layout)
    return figure


def figure_bytes(figure: Figure, file_format: str) -> bytes:
    """Return the figure as a file of format ``"svg"`` or ``"png"``; the same figure gives the same bytes."""
    stream = io.BytesIO()
    metadata = {"Date": None} if file_format == "svg" else {"Software": "octoplan"}
    with matplotlib.rc_context({"svg.hashsalt": "octoplan"}), warnings.catch_warnings():
        # A name may hold letters that the font lacks; the picture then shows a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=file_format, metadata=metadata)
    return stream.getvalue()


def _draw_header(figure: Figure, timeline: Timeline, layout: Layout) -> None:
    facts = (
        f"makespan {style.time_text(timeline.makespan_s, timeline.makespan_s)}   |   "
        f"bubble {100 * timeline.bubble_fraction:.1f} %   |   {timeline.num_ranks // timeline.rows_per_rank} ranks, "
        f"{timeline.num_microbatches} microbatches"
    )
    left, height = layout.left / layout.width, layout.height
    title = style.printable(timeline.title)
    figure.text(
        left, 1 - 0.3 / height, title, fontsize=13, weight="bold", color=style.TEXT_COLOUR, parse_math=False
    )
    figure.text(left, 1 - 0.54 / height, facts, fontsize=10, color=style.TEXT_COLOUR)
    figure.legend(
        handles=_legend_handles(timeline),
        loc="upper right",
        bbox_to_anchor=(1 - 0.1 / layout.width, 1 - 0.36 / height),
        ncols=9,
        frameon=False,
        fontsize=8.5,
        handlelength=1.3,
        handleheight=1.0,
        columnspacing=1.2,
        handletextpad=0.5,
    )


def _legend_handles(timeline: Timeline) -> list[Patch | Line2D]:
    kinds = {op.kind for op in timeline.ops}
    handles: list[Patch | Line2D] = [
        Patch(color=style.KIND_COLOURS[kind], label=name)
        for kind, name in style.KIND_NAMES.items()
        if kind in kinds
    ]
    handles.append(
        Patch(fc=style.IDLE_COLOUR, ec=style.IDLE_HATCH_COLOUR, hatch="////", linewidth=0, label="idle")
    )
    if timeline.memory:
        handles.append(Patch(color=style.STATE_COLOUR, label="state"))
        handles.append(Patch(color=style.ACTIVATION_COLOUR, label="activations"))
    if any(curve.limit_bytes is not None for curve in timeline.memory):
        handles.append(Line2D([], [], color=style.LIMIT_COLOUR, lw=1, dashes=(5, 2), label="limit"))
    return handles


def _draw_stage_labels(figure: Figure, timeline: Timeline, layout: Layout) -> None:
    """List the stages below everything, in columns."""
    rows, columns = layout.num_label_rows, layout.num_label_columns
    for number, label in enumerate(timeline.stage_labels[: rows * columns]):
        column, row = divmod(number, rows)
        figure.text(
            (layout.left + column * (layout.width - layout.left - 0.2) / columns) / layout.width,
            (0.17 * (rows - row) - 0.06) / layout.height,
            style.printable(label),
            fontsize=7.5,
            color=style.MUTED_COLOUR,
            parse_math=False,
        )
