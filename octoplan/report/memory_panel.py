"""The lower panel: one small step curve of memory per rank, with its limit."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from octoplan.report import style
from octoplan.report.layout import HALF_BOX, Layout, caption, label_step, prepare_axes, side_text
from octoplan.report.memory_envelope import envelope
from octoplan.report.timeline import MemoryCurve, Timeline

#: Steps over all ranks; finer ones than these are drawn as the peak of their slice.
_MAX_MEMORY_STEPS = 20_000


def draw_memory(axes: Axes, timeline: Timeline, layout: Layout, factor: float) -> None:
    """One small step curve per rank, all on one scale so that they can be compared."""
    prepare_axes(axes, timeline, factor)
    scale = max(max(curve.peak_bytes, curve.limit_bytes or 0) for curve in timeline.memory) or 1.0
    every = label_step(layout.memory_row)
    for rank, curve in enumerate(timeline.memory):
        _draw_curve(axes, timeline, curve, rank, scale, factor)
        if curve.limit_bytes is not None:
            level = rank + HALF_BOX * (1 - 2 * curve.limit_bytes / scale)
            thick = layout.memory_row > 0.25
            dashes = {"lw": 0.9, "dashes": (5, 2)} if thick else {"lw": 0.4}
            axes.plot([0, axes.get_xlim()[1]], [level, level], color=style.LIMIT_COLOUR, zorder=3, **dashes)
        if rank % every == 0:
            side_text(axes, rank, timeline.rank_label(rank), "left", layout.memory_row)
            limit = "" if curve.limit_bytes is None else f" / {style.gib(curve.limit_bytes):.1f}"
            text = f"{style.gib(curve.peak_bytes):.1f}{limit} GiB"
            side_text(axes, rank, text, "right", layout.memory_row)
    limited = any(curve.limit_bytes is not None for curve in timeline.memory)
    caption(axes, "peak / limit" if limited else "peak", at_right=True)
    caption(axes, "memory")


def _draw_curve(
    axes: Axes, timeline: Timeline, curve: MemoryCurve, rank: int, scale: float, factor: float
) -> None:
    steps = max(_MAX_MEMORY_STEPS // timeline.num_ranks, 200)
    times, sizes = envelope(curve, timeline.makespan_s, min(steps, 3_000))
    span = axes.get_xlim()[1]
    floor, height = rank + HALF_BOX, 2 * HALF_BOX / scale
    axes.add_patch(
        Rectangle((0, floor), span, -2 * HALF_BOX, facecolor=style.IDLE_COLOUR, linewidth=0, zorder=0)
    )
    if len(times):
        edges = np.append(times * factor, span)
        heights = floor - np.append(sizes, sizes[-1]) * height
        axes.fill_between(
            edges, floor, heights, step="post", facecolor=style.ACTIVATION_COLOUR, linewidth=0, zorder=1
        )
    axes.add_patch(
        Rectangle((0, floor), span, -curve.state_bytes * height, facecolor=style.STATE_COLOUR, lw=0, zorder=2)
    )
