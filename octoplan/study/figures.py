"""The report's pictures. Lines differ in colour, dash and marker, so that they stay apart in grey, too."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from octoplan.report import style
from octoplan.study.statistics import (
    gaps_over_time,
    geometric_mean,
    makespans,
    performance_profile,
    scaling_axes,
)

#: Okabe and Ito's palette; the first colour is for octoplan.
_OWN_COLOUR, *_COLOURS = (
    "#d55e00",
    "#000000",
    "#0072b2",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7f7f7f",
)
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "osD^vP*Xd<>ph"
#: Numbers as they are: the usual labels of logarithmic axes are formulas.
_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
_AXIS_NAMES = {"num_layers": "layers", "num_ranks": "ranks", "microbatches": "microbatches"}
#: Largest ratio that a performance profile shows.
_WIDEST_RATIO = 3.0
_SETTINGS = {
    "svg.hashsalt": "octoplan",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    # A name may hold dollar signs, which are no formulas.
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e0e0e0",
    "axes.axisbelow": True,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with the name of its file, a heading and what it shows in words."""

    name: str
    title: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        """Return the picture as an ``svg`` element without header, so that it can stand inside a page."""
        text = _render(self.figure, "svg").decode("utf-8")
        text = text[text.index("<svg") :]
        return re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)

    def pdf(self) -> bytes:
        """Return the picture as a PDF file."""
        return _render(self.figure, "pdf")


def draw_pictures(frame: pd.DataFrame, trace: pd.DataFrame, references: list[str]) -> list[Picture]:
    """Return every picture that the results can fill."""
    looks = _Looks(frame.groupby("label", sort=False)["kind"].first().to_dict())
    with matplotlib.rc_context(_SETTINGS):
        pictures = [
            _profile(frame, looks),
            _anytime(frame, trace, looks),
            _memory(frame, references, looks),
            *_scaling(frame, references, looks),
        ]
    return [picture for picture in pictures if picture is not None]


class _Looks:
    """Colour, dash, marker and width of every label; the same in all pictures."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self.labels = list(kinds)
        colours, markers = cycle(_COLOURS), cycle(_MARKERS)
        dashes = (dash for dash in cycle(_DASHES) for _ in _COLOURS)
        own_dashes = cycle(_DASHES)
        self._of = {
            label: (_OWN_COLOUR, next(own_dashes), next(markers), 2.4)
            if kind == "octoplan"
            else (next(colours), next(dashes), next(markers), 1.4)
            for label, kind in kinds.items()
        }

    def line(self, label: str) -> dict[str, Any]:
        colour, dash, _, width = self._of[label]
        return {"color": colour, "linestyle": dash, "linewidth": width, "label": style.printable(label)}

    def points(self, label: str) -> dict[str, Any]:
        colour, _, marker, _ = self._of[label]
        return {"color": colour, "marker": marker, "label": style.printable(label)}

    def both(self, label: str) -> dict[str, Any]:
        return {**self.line(label), "marker": self._of[label][2], "markersize": 5}


def _profile(frame: pd.DataFrame, looks: _Looks) -> Picture | None:
    table = makespans(frame)
    if table.empty or table.isna().all(axis=None):
        return None
    profiles = performance_profile(table)
    worst = max((ratios[-1] for ratios, _ in profiles.values() if len(ratios)), default=1.0)
    right = min(max(worst * 1.02, 1.05), _WIDEST_RATIO)
    figure, axes = _axes()
    for label, (ratios, shares) in profiles.items():
        # A step at each ratio, drawn out to the right edge.
        x, y = np.append(ratios, right), np.append(shares, shares[-1:] if len(shares) else [0.0])
        axes.step(np.append(1.0, x), np.append(0.0, y), where="post", **looks.line(label))
    # A little room, so that a line along an edge is seen.
    axes.set_xlim(1.0 - 0.02 * (right - 1.0), right)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("makespan / shortest makespan of any method")
    axes.set_ylabel("instances solved within that")
    _legend(figure, axes)
    caption = (
        "Performance profile (Dolan and More): the share of instances for which a method's plan is within a factor of "
        "the shortest one known. Higher and further left is better; the value at 1 is how often a method is the best."
    )
    return Picture("profile", "Performance profile", caption, figure)


def _anytime(frame: pd.DataFrame, trace: pd.DataFrame, looks: _Looks) -> Picture | None:
    curves = gaps_over_time(frame, trace)
    if not curves:
        return None
    figure, axes = _axes()
    for label, (seconds, low, median, high) in curves.items():
        shown = np.isfinite(median)
        axes.plot(seconds[shown], median[shown], drawstyle="steps-post", **looks.line(label))
        both = np.isfinite(low) & np.isfinite(high)
        colour = looks.line(label)["color"]
        axes.fill_between(
            seconds[both], low[both], high[both], step="post", color=colour, alpha=0.12, linewidth=0
        )
    axes.set_xscale("log")
    axes.set_ylim(0, min(axes.get_ylim()[1], 1.0))
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("seconds of search")
    axes.set_ylabel("gap to the best bound")
    _legend(figure, axes)
    caption = (
        "Anytime behaviour: the gap to the best bound known of an instance, against the time that a method has had. "
        "Lines are medians over instances and begin where half of them have a plan; bands are quartiles."
    )
    return Picture("anytime", "Gap against time", caption, figure)


def _memory(frame: pd.DataFrame, references: list[str], looks: _Looks) -> Picture | None:
    solved = frame[(frame["status"] == "ok") & (frame["peak_dynamic_bytes"] > 0)]
    if not references or solved.empty:
        return None
    reference = references[-1]
    base = (
        solved[solved["method"] == reference].groupby("instance")[["makespan_s", "peak_dynamic_bytes"]].mean()
    )
    both = solved.merge(base, left_on="instance", right_index=True, suffixes=("", "_base"))
    if both.empty:
        return None
    figure, axes = _axes()
    for label in looks.labels:
        rows = both[both["label"] == label]
        if rows.empty:
            continue
        axes.scatter(
            rows["peak_dynamic_bytes"] / rows["peak_dynamic_bytes_base"],
            rows["makespan_s"] / rows["makespan_s_base"],
            s=24,
            alpha=0.6,
            linewidths=0,
            **looks.points(label),
        )
    for line in (axes.axhline, axes.axvline):
        line(1.0, color=style.MUTED_COLOUR, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_PLAIN)
    name = style.printable(reference)
    axes.set_xlabel(f"peak memory without state / that of {name}")
    axes.set_ylabel(f"makespan / that of {name}")
    _legend(figure, axes)
    caption = (
        f"Memory against makespan, both as multiples of what {reference} takes on the same instance; one point per "
        "cell. Lower and further left is better."
    )
    return Picture("memory", "Memory against makespan", caption, figure)


def _scaling(frame: pd.DataFrame, references: list[str], looks: _Looks) -> Iterator[Picture]:
    """Yield a picture for each size along which the suite scales: speedup above, seconds below."""
    if not references:
        return
    reference = references[-1]
    for axis, rows in scaling_axes(frame):
        name = _AXIS_NAMES[axis]
        figure = Figure(figsize=(7.5, 5.6), facecolor="white")
        above, below = figure.subplots(2, 1, sharex=True)
        for label in looks.labels:
            _scaling_lines(rows, axis, label, reference, looks, above, below)
        above.axhline(1.0, color=style.MUTED_COLOUR, linewidth=0.8)
        above.set_ylabel(f"speedup over {style.printable(reference)}")
        below.set_ylabel("median seconds")
        below.set_yscale("log")
        below.set_xscale("log", base=2)
        below.set_xticks(sorted(rows[axis].unique()), minor=False)
        below.xaxis.set_major_formatter(_PLAIN)
        below.xaxis.set_minor_formatter(NullFormatter())
        below.yaxis.set_major_formatter(_PLAIN)
        below.set_xlabel(name)
        _legend(figure, above)
        caption = (
            f"Scaling with the number of {name}: above, the geometric mean of the speedup over {reference} with its "
            "95% interval; below, the median seconds that a method takes."
        )
        yield Picture(f"scaling-{name}", f"Scaling: {name}", caption, figure)


def _scaling_lines(
    frame: pd.DataFrame, axis: str, label: str, reference: str, looks: _Looks, above: Axes, below: Axes
) -> None:
    values, estimates, seconds = [], [], []
    for value, rows in frame.groupby(axis):
        table = makespans(rows)
        ratios = (
            (table[reference] / table[label]).dropna() if {reference, label} <= set(table) else pd.Series()
        )
        estimate = geometric_mean(ratios.to_numpy(dtype=float))
        if estimate is not None:
            values.append(value)
            estimates.append(estimate)
            seconds.append(rows[(rows["label"] == label) & (rows["status"] == "ok")]["seconds"].median())
    if not values:
        return
    means = np.array([estimate.mean for estimate in estimates])
    spread = np.array([[e.mean - e.low, e.high - e.mean] for e in estimates]).T
    above.errorbar(values, means, yerr=np.maximum(spread, 0), capsize=2, **looks.both(label))
    below.plot(values, seconds, **looks.both(label))


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.5, 3.8), facecolor="white")
    return figure, figure.subplots()


def _legend(figure: Figure, axes: Axes) -> None:
    """Put the legend to the right, outside of the lines."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)
    figure.set_layout_engine("constrained")


def _render(figure: Figure, file_format: str) -> bytes:
    stream = io.BytesIO()
    metadata = {"Date": None} if file_format == "svg" else {"CreationDate": None}
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=file_format, metadata=metadata)
    return stream.getvalue()
