"""What the report says in numbers: makespans by instance, speedups with intervals, profiles, gaps over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from octoplan.study.methods import SearchLimit
from octoplan_solvers.ops import FloatArray

#: Resamples of a bootstrap, and its seed: the same results give the same intervals.
_RESAMPLES = 2000
_SEED = 0
_INTERVAL = (2.5, 97.5)
DIMENSIONS = ("partition", "placement", "order")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A geometric mean over ``count`` instances, and the interval that a bootstrap over instances gives (95%)."""

    mean: float
    low: float
    high: float
    count: int


def label_column(frame: pd.DataFrame) -> pd.Series:
    """Return what each row is called in tables: its method, and its limit where the method runs under several."""
    limits = limit_column(frame)
    is_alone = limits.groupby(frame["method"]).transform("nunique") == 1
    return frame["method"].where(is_alone, frame["method"] + " (" + limits + ")")


def limit_column(frame: pd.DataFrame) -> pd.Series:
    """Return each row's search limit as text; empty for a method that does not search."""
    limits = [
        str(SearchLimit(None if math.isnan(seconds) else seconds, None if math.isnan(count) else int(count)))
        for seconds, count in zip(frame["time_limit_s"], frame["max_evaluations"], strict=True)
    ]
    return pd.Series(limits, index=frame.index, dtype=object)


def makespans(frame: pd.DataFrame) -> pd.DataFrame:
    """Return seconds by instance (rows) and label (columns): geometric means over seeds and repetitions.

    A cell that has no plan which holds leaves its seed out; without any there is NaN.
    """
    solved = frame[(frame["status"] == "ok") & (frame["makespan_s"] > 0)]
    logs = np.log(solved["makespan_s"]).groupby([solved["instance"], solved["label"]]).mean()
    table = np.exp(logs).unstack()
    rows, columns = frame["instance"].unique(), frame["label"].unique()
    return table.reindex(index=rows, columns=columns)


def geometric_mean(ratios: Sequence[float] | FloatArray) -> Estimate | None:
    """Return the mean of positive ratios, one per instance, with its interval; None without any."""
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    if not len(logs):
        return None
    random = np.random.default_rng(_SEED)
    means = logs[random.integers(0, len(logs), size=(_RESAMPLES, len(logs)))].mean(axis=1)
    low, high = np.exp(np.percentile(means, _INTERVAL))
    return Estimate(float(np.exp(logs.mean())), float(low), float(high), len(logs))


def speedup(table: pd.DataFrame, label: str, reference: str) -> Estimate | None:
    """Return how many times shorter a label's plans are than the reference's, where both have one."""
    if label not in table or reference not in table:
        return None
    return geometric_mean((table[reference] / table[label]).dropna().to_numpy())


def performance_profile(table: pd.DataFrame) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return Dolan and More's profile of every label.

    Returns
    -------
    dict
        ``(ratios, shares)``: ``shares[i]`` of the instances are solved within ``ratios[i]`` times the best
        makespan of any label. Instances that no label solves count as unsolved by all.
    """
    ratios = table.div(table.min(axis=1), axis=0).to_numpy()
    profiles = {}
    for number, label in enumerate(table.columns):
        own = np.sort(ratios[np.isfinite(ratios[:, number]), number])
        profiles[str(label)] = own, np.arange(1, len(own) + 1) / max(len(table), 1)
    return profiles


def gaps_over_time(
    frame: pd.DataFrame, trace: pd.DataFrame, points: int = 60
) -> dict[str, tuple[FloatArray, ...]]:
    """Return, for every label with a trace, seconds and the quartiles of the gap at that time.

    The gap is to the instance's best bound. Cells without a plan yet count as infinitely far.

    Returns
    -------
    dict
        ``(seconds, lower quartile, median, upper quartile)``, of shape ``(points,)`` each.
    """
    curves = {}
    solved = frame[(frame["status"] == "ok") & frame["instance_bound_s"].notna()]
    steps = dict(iter(trace.groupby("cell")))
    for label, rows in solved.groupby("label", sort=False):
        if rows["kind"].iloc[0] == "baseline":
            continue
        ends = rows["seconds"].to_numpy()
        grid = np.geomspace(max(rows["seconds_to_first"].min(), 1e-3), max(ends.max(), 2e-3), points)
        gaps = np.stack([_gap_at(row, steps.get(row.cell), grid) for row in rows.itertuples()])
        # Quartiles by rank, not interpolated: between a number and infinity there is nothing.
        curves[str(label)] = grid, *np.percentile(gaps, (25, 50, 75), axis=0, method="higher")
    return curves


def _gap_at(row: pd.Series, steps: pd.DataFrame | None, grid: FloatArray) -> FloatArray:
    """Return a cell's gap at each time: infinite before the first plan, the checked one's at the end."""
    gap = np.full(len(grid), np.inf)
    for seconds, makespan in [] if steps is None else zip(steps["seconds"], steps["makespan_s"], strict=True):
        # A search may price a candidate lower than its plan turns out to be.
        gap[grid >= seconds] = max(makespan, row.makespan_s) / row.instance_bound_s - 1
    gap[grid >= row.seconds * (1 - 1e-9)] = row.makespan_s / row.instance_bound_s - 1
    positive: FloatArray = np.maximum(gap, 0.0)
    return positive


def scaling_axes(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the columns along which the suite scales, with the rows that show it.

    A column counts if it takes several values, and not only together with one that counts already. The number of layers
    is compared among random instances alone: models by name differ in more than that.
    """
    axes: list[tuple[str, pd.DataFrame]] = []
    for name in ("num_layers", "num_ranks", "microbatches"):
        rows = frame
        if name == "num_layers":
            rows = frame[frame["body_layers"].notna()] if "body_layers" in frame else frame[:0]
        if rows[name].nunique() < 2:
            continue
        if all(rows.groupby(axis)[name].nunique().max() > 1 for axis, _ in axes):
            axes.append((name, rows))
    return axes


def dimension_values(frame: pd.DataFrame) -> pd.DataFrame:
    """Return makespans by instance and searched subset (``none``: the starting plan); empty unless all 8 are there."""
    searched = frame[frame["kind"] == "search"].copy()
    searched["label"] = searched["dimensions"].replace("", "none")
    searched["label"] = [
        "+".join(sorted(text.split("+"), key=[*DIMENSIONS, "none"].index)) for text in searched["label"]
    ]
    table = makespans(searched) if len(searched) else pd.DataFrame()
    wanted = ["none", *("+".join(subset) for size in (1, 2, 3) for subset in combinations(DIMENSIONS, size))]
    return table[wanted] if set(wanted) <= set(table.columns) else pd.DataFrame()


def dimension_worth(table: pd.DataFrame, dimension: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return by instance how many times shorter plans become by searching a dimension.

    Returns
    -------
    alone, last, average:
        Alone; on top of the two others; and the Shapley value: the geometric mean over all orders in which the three
        may be added.
    """
    whole = table.dropna()
    others = [name for name in DIMENSIONS if name != dimension]

    def gain(before: Sequence[str]) -> FloatArray:
        after = [name for name in DIMENSIONS if name in (*before, dimension)]
        without = "+".join(name for name in DIMENSIONS if name in before) or "none"
        return np.asarray(whole[without] / whole["+".join(after)], dtype=np.float64)

    alone, last = gain(()), gain(others)
    middle = np.sqrt(gain(others[:1]) * gain(others[1:]))
    return alone, last, np.cbrt(alone * middle * last)
