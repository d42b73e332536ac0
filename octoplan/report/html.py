"""The timeline as one HTML page: zoom, drag, and a text for every op; nothing is loaded from elsewhere.

The ops travel as JSON inside the page and are drawn on a canvas, so a hundred thousand of them stay fluid.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

from octoplan.report import style
from octoplan.report.html_template import PAGE
from octoplan.report.memory_envelope import envelope
from octoplan.report.timeline import Timeline

#: How many steps of memory the page holds, over all ranks.
_MAX_MEMORY_STEPS = 200_000


def timeline_page(timeline: Timeline) -> str:
    """Return the page. Names are escaped: none of them can become markup or script."""
    data = json.dumps(page_data(timeline), separators=(",", ":"), allow_nan=False)
    parts = {
        "@TITLE@": html.escape(style.printable(timeline.title)),
        # "<" could end the script element that carries the data; in JSON it may be written as an escape.
        "@DATA@": data.replace("<", "\\u003c"),
    }
    return re.sub("|".join(parts), lambda match: parts[match[0]], PAGE)


def page_data(timeline: Timeline) -> dict[str, Any]:
    """Return what the page's script draws: plain lists and numbers, times in seconds.

    ``rows[rank]`` lists the rank's ops by start as ``[group, microbatch, start, end]``; ``groups`` says the
    kind, stage and colour that the ops of a group share.
    """
    levels = timeline.stage_levels()
    groups = {key: number for number, key in enumerate(sorted({(op.kind, op.stage) for op in timeline.ops}))}
    rows: list[list[list[float]]] = [[] for _ in range(timeline.num_ranks)]
    for op in sorted(timeline.ops, key=lambda op: op.start_s):
        rows[op.rank].append([groups[op.kind, op.stage], op.microbatch, _short(op.start_s), _short(op.end_s)])
    kinds = {kind for kind, _ in groups}
    return {
        "title": style.printable(timeline.title),
        "makespan": timeline.makespan_s,
        "bubble": timeline.bubble_fraction,
        "microbatches": timeline.num_microbatches,
        "groups": [_group(kind, stage, levels[stage]) for kind, stage in groups],
        "rows": rows,
        "rowsPerRank": timeline.rows_per_rank,
        "busy": timeline.busy_fractions(),
        "ranks": [style.printable(timeline.rank_label(rank)) for rank in range(timeline.num_ranks)],
        "stages": [style.printable(label) for label in timeline.stage_labels],
        "transfers": [
            [m.source_rank, m.destination_rank, _short(m.start_s), _short(m.arrival_s), m.word]
            for m in timeline.transfers
        ],
        "memory": _memory(timeline),
        "legend": [
            [style.KIND_COLOURS[kind], name] for kind, name in style.KIND_NAMES.items() if kind in kinds
        ],
    }


def _short(seconds: float) -> float:
    """Round to what a zoomed page can still show, which keeps the file small."""
    return float(f"{seconds:.9g}")


def _group(kind: str, stage: int, level: float) -> dict[str, Any]:
    colour = style.op_colour(kind, level)
    return {
        "kind": kind,
        "stage": stage,
        "colour": style.hex_colour(colour),
        "text": "#ffffff" if style.is_dark(colour) else "#000000",
    }


def _memory(timeline: Timeline) -> list[dict[str, Any]]:
    steps = max(_MAX_MEMORY_STEPS // timeline.num_ranks, 100)
    curves = []
    for curve in timeline.memory:
        times, sizes = envelope(curve, timeline.makespan_s, steps)
        curves.append(
            {
                "times": [_short(time) for time in times.tolist()],
                "bytes": sizes.tolist(),
                "limit": curve.limit_bytes,
                "state": curve.state_bytes,
                "peak": curve.peak_bytes,
            }
        )
    return curves
