"""Shares of thin ops, and thinned memory curves, against sums taken directly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octoplan.report import MemoryCurve, Timeline, TimelineOp, style
from octoplan.report.memory_envelope import envelope
from octoplan.report.shares import shares_image


@given(
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=30),
    durations=st.lists(st.floats(0.01, 3), min_size=30, max_size=30),
    num_slices=st.integers(1, 12),
)
def test_coloured_height_is_the_share_of_the_slice(
    gaps: list[float], durations: list[float], num_slices: int
) -> None:
    ops, clock = [], 0.0
    for number, (gap, duration) in enumerate(zip(gaps, durations, strict=False)):
        ops.append(TimelineOp(0, 0, "FIWB"[number % 4], number, clock + gap, clock + gap + duration))
        clock += gap + duration
    row_pixels = 101
    image = shares_image(Timeline("t", 1, clock, 0.0, tuple(ops)), num_slices, row_pixels)
    length = clock / num_slices
    for column in range(num_slices):
        low, high = column * length, (column + 1) * length
        for kind in "FIWB":
            busy = sum(max(0.0, min(op.end_s, high) - max(op.start_s, low)) for op in ops if op.kind == kind)
            is_colour = np.all(np.isclose(image[:, column, :3], style.op_colour(kind, 0.0)), axis=1)
            height = np.count_nonzero(is_colour & (image[:, column, 3] == 1))
            assert abs(height - busy / length * (row_pixels - 1)) <= 1.001


@given(
    steps=st.lists(st.tuples(st.floats(0.001, 2), st.floats(0, 100)), min_size=1, max_size=60),
    max_points=st.integers(1, 40),
)
def test_envelope_shows_the_largest_value_of_every_slice(
    steps: list[tuple[float, float]], max_points: int
) -> None:
    times = np.cumsum([0.0, *(length for length, _ in steps)])
    makespan, starts = float(times[-1]), times[:-1]
    curve = MemoryCurve(tuple(starts), tuple(size for _, size in steps), None, 0.0)
    edges, heights = envelope(curve, makespan, max_points)
    assert len(edges) == len(heights) == min(len(steps), max_points)
    if len(steps) <= max_points:
        assert heights.tolist() == list(curve.bytes)
        return
    for number, height in enumerate(heights):
        low = edges[number]
        high = edges[number + 1] if number + 1 < len(edges) else makespan
        seen = [
            size
            for start, end, size in zip(times[:-1], times[1:], curve.bytes, strict=True)
            if start < high and end > low
        ]
        assert height == max(seen)
    assert heights.max() == max(curve.bytes)
