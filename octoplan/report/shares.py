"""What a row shows when its ops are thinner than a pixel: the share of each colour in each slice of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from octoplan.report import style
from octoplan.report.timeline import Timeline, TimelineOp


def shares_image(timeline: Timeline, num_slices: int, row_pixels: int) -> NDArray[np.float64]:
    """Return an RGBA image, transparent where idle.

    Every column is one of ``num_slices`` equal slices of the makespan. In the ``row_pixels`` pixels of a rank
    the colours are stacked from the bottom, each as high as the share of the slice that its ops take, and one
    transparent row of pixels parts the ranks.
    """
    edges = np.linspace(0.0, timeline.makespan_s, num_slices + 1)
    image = np.zeros((timeline.num_ranks * row_pixels, num_slices, 4))
    levels = timeline.stage_levels()
    ops_of: list[dict[tuple[int, int], list[TimelineOp]]] = [{} for _ in range(timeline.num_ranks)]
    order = {kind: position for position, kind in enumerate(style.KIND_NAMES)}
    for op in timeline.ops:
        ops_of[op.rank].setdefault((order[op.kind], op.stage), []).append(op)
    heights = np.arange(row_pixels, 0, -1)[:, np.newaxis] - 0.5
    for rank, groups in enumerate(ops_of):
        rows = image[rank * row_pixels : (rank + 1) * row_pixels]
        filled = np.zeros(num_slices)
        for (_, stage), ops in sorted(groups.items()):
            bottom = filled
            filled = bottom + _share(ops, edges) * (row_pixels - 1)
            inside = (heights >= bottom) & (heights < filled)
            rows[inside] = (*style.op_colour(ops[0].kind, levels[stage]), 1.0)
    return image


def _share(ops: Sequence[TimelineOp], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each slice that these ops, which do not overlap, take."""
    starts = np.sort(np.array([op.start_s for op in ops], dtype=np.float64))
    ends = np.sort(np.array([op.end_s for op in ops], dtype=np.float64))
    corners = np.stack([starts, ends], axis=1).ravel()
    busy = np.stack([np.zeros(len(ops)), ends - starts], axis=1).ravel().cumsum()
    share: NDArray[np.float64] = np.diff(np.interp(edges, corners, busy)) / np.diff(edges)
    return share
