"""The still picture: what is drawn is what the timeline says."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread

from octoplan.report import style
from octoplan.report.figure import figure_bytes, timeline_figure
from octoplan.report.timeline import Timeline
from tests.octoplan.report.synthetic import GIB, pipeline_timeline


def boxes_of(figure: Figure) -> PolyCollection:
    (boxes,) = [item for item in figure.axes[0].collections if isinstance(item, PolyCollection)]
    return boxes


def texts_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def big_timeline() -> Timeline:
    """Two ranks, each with the same rhythm of 6,000 ops: a third F, a third W, a third idle."""
    ops = pipeline_timeline(2, 1).ops
    rhythm = tuple(
        replace(
            ops[0], rank=rank, stage=rank, kind=kind, microbatch=m, start_s=m + at / 3, end_s=m + (at + 1) / 3
        )
        for rank in range(2)
        for m in range(3_000)
        for at, kind in enumerate("FW")
    )
    return Timeline("big", 2, 3_000.0, 1 / 3, rhythm)


def test_every_op_is_a_box_at_its_place_and_time() -> None:
    timeline = pipeline_timeline(4, 6, stages_per_rank=2)
    boxes = boxes_of(timeline_figure(timeline))
    factor = 1e3  # the makespan is below a second, so the axis counts milliseconds
    assert len(boxes.get_paths()) == len(timeline.ops)
    levels = timeline.stage_levels()
    for op, path, colour in zip(timeline.ops, boxes.get_paths(), boxes.get_facecolor(), strict=True):
        corners = np.asarray(path.vertices)
        (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
        assert (left, right) == pytest.approx((op.start_s * factor, op.end_s * factor))
        assert top < op.rank < bottom
        assert bottom - top < 1
        assert tuple(colour[:3]) == pytest.approx(style.op_colour(op.kind, levels[op.stage]))


def test_rank_zero_is_on_top() -> None:
    axes = timeline_figure(pipeline_timeline(3, 2)).axes[0]
    bottom, top = axes.get_ylim()
    assert top < 0 < 2 < bottom


def test_numbers_names_busy_shares_and_facts_are_written() -> None:
    timeline = pipeline_timeline(4, 16)
    figure = timeline_figure(timeline)
    texts = texts_of(figure.axes[0])
    for m in range(16):
        assert texts.count(str(m)) == 4 * 3
    assert set(timeline.rank_labels) <= set(texts)
    busy = [sum(op.end_s - op.start_s for op in timeline.ops if op.rank == rank) for rank in range(4)]
    for seconds in busy:
        assert f"{100 * seconds / timeline.makespan_s:.1f} %" in texts
    written = " ".join(text.get_text() for text in figure.texts)
    assert timeline.title in written
    assert f"makespan {timeline.makespan_s * 1e3:.4g} ms" in written
    assert f"bubble {100 * timeline.bubble_fraction:.1f} %" in written
    assert all(label in written for label in timeline.stage_labels)


def test_legend_names_only_what_occurs() -> None:
    def legend(timeline: Timeline) -> set[str]:
        return {text.get_text() for text in timeline_figure(timeline).legends[0].get_texts()}

    fused = legend(replace(pipeline_timeline(2, 2, split=False), memory=()))
    assert fused == {"F: forward", "B: backward", "idle"}
    split = legend(pipeline_timeline(2, 2, limit_bytes=None))
    assert {"I: input gradient", "W: weight gradient", "state", "activations"} <= split
    assert "limit" not in split
    assert "limit" in legend(pipeline_timeline(2, 2))


def test_memory_panel_shows_peak_and_limit_in_gib() -> None:
    timeline = pipeline_timeline(4, 8, limit_bytes=80 * GIB)
    axes = timeline_figure(timeline).axes[1]
    texts = texts_of(axes)
    for curve in timeline.memory:
        assert f"{max(curve.bytes) / GIB:.1f} / 80.0 GiB" in texts
    assert len(axes.lines) == 4
    without_limit = timeline_figure(pipeline_timeline(4, 8, limit_bytes=None)).axes[1]
    assert not without_limit.lines
    assert "74.0 GiB" in texts_of(without_limit)


def test_memory_is_left_out_where_unknown() -> None:
    assert len(timeline_figure(replace(pipeline_timeline(4, 8), memory=())).axes) == 1


def test_transfers_are_lines_from_sender_to_receiver() -> None:
    timeline = pipeline_timeline(3, 2)
    axes = timeline_figure(timeline).axes[0]
    (lines,) = [
        item
        for item in axes.collections
        if isinstance(item, LineCollection) and not isinstance(item, PolyCollection)
    ]
    assert len(lines.get_segments()) == len(timeline.transfers)
    for message, segment in zip(timeline.transfers, lines.get_segments(), strict=True):
        assert segment[:, 0] == pytest.approx([message.start_s * 1e3, message.arrival_s * 1e3])
        assert np.rint(segment[:, 1]).tolist() == [message.source_rank, message.destination_rank]


def test_pixels_of_boxes_and_of_idle_time_have_their_colours() -> None:
    """Look at the rendered picture itself: just inside a box's corner, and beside the last box."""
    timeline = replace(pipeline_timeline(2, 2, split=False), memory=(), transfers=())
    figure = timeline_figure(timeline)
    pixels = imread(io.BytesIO(figure_bytes(figure, "png")))
    axes = figure.axes[0]

    def colour_at(time_s: float, row: float) -> np.ndarray:
        x, y = axes.transData.transform((time_s * 1e3, row))
        return pixels[pixels.shape[0] - 1 - round(y), round(x), :3]

    for op in timeline.ops:
        inside = op.start_s + 0.1 * (op.end_s - op.start_s)
        assert colour_at(inside, op.rank - 0.3) == pytest.approx(style.op_colour(op.kind, 0.0), abs=0.02)
    first_of_rank_1 = min(op.start_s for op in timeline.ops if op.rank == 1)
    idle = colour_at(first_of_rank_1 / 2, 1.0)
    assert idle.min() > 0.8
    assert idle.max() < 0.97


def test_many_ops_become_an_image_of_shares() -> None:
    timeline = big_timeline()
    figure = timeline_figure(timeline)
    axes = figure.axes[0]
    assert not [item for item in axes.collections if isinstance(item, PolyCollection)]
    assert len(axes.images) == 1
    assert len(figure_bytes(figure, "svg")) < 500_000


def test_numbers_are_dropped_where_boxes_are_too_small() -> None:
    timeline = pipeline_timeline(1, 180)
    texts = texts_of(timeline_figure(timeline).axes[0])
    assert len(boxes_of(timeline_figure(timeline)).get_paths()) == 540
    assert "177" not in texts


def test_drawing_leaves_no_global_state() -> None:
    import matplotlib.pyplot as plt

    before = dict(plt.rcParams)
    figure_bytes(timeline_figure(pipeline_timeline(2, 2)), "svg")
    assert plt.get_fignums() == []
    assert dict(plt.rcParams) == before
