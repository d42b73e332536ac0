"""Thin a memory curve to what a picture can resolve, keeping every peak."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octoplan.report.timeline import MemoryCurve

Floats = NDArray[np.float64]


def envelope(curve: MemoryCurve, makespan_s: float, max_points: int) -> tuple[Floats, Floats]:
    """Return times and bytes of a step curve with at most ``max_points`` steps.

    A curve that is short enough comes back as it is. A longer one is cut into equal slices of time, each of
    which shows the largest value that the curve takes there.
    """
    times = np.asarray(curve.times_s, dtype=np.float64)
    sizes = np.asarray(curve.bytes, dtype=np.float64)
    if len(times) <= max_points or makespan_s <= 0:
        return times, sizes
    edges = np.linspace(0.0, makespan_s, max_points, endpoint=False)
    # The value at each edge counts in the slice that begins there, so put it in front of the slice's steps.
    at_edge = sizes[np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)]
    all_times = np.concatenate([edges, times])
    order = np.argsort(all_times, kind="stable")
    starts = np.searchsorted(all_times[order], edges, side="left")
    return edges, np.maximum.reduceat(np.concatenate([at_edge, sizes])[order], starts)
