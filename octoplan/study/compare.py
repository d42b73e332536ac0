"""Compare two studies cell by cell: has a change made plans better or worse?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from octoplan.study.results import load_results
from octoplan.study.statistics import Estimate, geometric_mean, limit_column
from octoplan_schemas import InputError

#: Relative difference of makespans that is rounding.
ROUNDING = 1e-9
#: What makes two cells the same question.
_KEY = ["instance_sha256", "method", "limit", "seed", "repetition"]


@dataclass(frozen=True)
class Comparison:
    """What changed from study A to study B.

    Attributes
    ----------
    cells:
        One row per question that both answer: ``instance``, ``method``, ``limit``, ``seed``, ``repetition``,
        ``status_a``, ``status_b``, ``makespan_a_s``, ``makespan_b_s``, ``ratio`` (B / A; NaN unless both have a
        plan) and ``verdict``: ``better``, ``same``, ``worse``, ``both failed``.
    only_a, only_b:
        Cells of one study alone.
    """

    cells: pd.DataFrame
    only_a: int
    only_b: int

    @property
    def methods(self) -> list[MethodComparison]:
        """Return the sums by method, and over all as the last one."""
        found = [_sum(str(name), rows) for name, rows in self.cells.groupby("method", sort=False)]
        return [*found, _sum("all", self.cells)]

    @property
    def worst_ratio(self) -> float:
        """The largest B / A; infinite if a cell has lost its plan, 1 if nothing can be compared."""
        if ((self.cells["verdict"] == "worse") & self.cells["ratio"].isna()).any():
            return float("inf")
        return float(self.cells["ratio"].max()) if self.cells["ratio"].notna().any() else 1.0

    def changed(self, most: int) -> pd.DataFrame:
        """Return the cells that changed most, lost plans first."""
        moved = self.cells[self.cells["verdict"].isin(("better", "worse"))]
        size = np.abs(np.log(moved["ratio"].fillna(0.0).replace(0.0, 1e-300)))
        return moved.loc[size.sort_values(ascending=False, kind="stable").index].head(most)


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """Counts of verdicts, and the geometric mean of B / A over instances."""

    method: str
    better: int
    same: int
    worse: int
    ratio: Estimate | None


def compare_studies(first: str | Path, second: str | Path) -> Comparison:
    """Compare the cells that two studies share: the same instance, method name, limit, seed and repetition.

    Raises
    ------
    InputError
        If a folder holds no study, or the two share no cell.
    """
    a, b = _keyed(Path(first)), _keyed(Path(second))
    both = a.merge(b, on=_KEY, suffixes=("_a", "_b"))
    if both.empty:
        raise InputError(
            "the two studies share no cell: instances, methods, limits or seeds differ",
            source=f"{first}, {second}",
        )
    ratio = both["makespan_s_b"] / both["makespan_s_a"]
    cells = pd.DataFrame(
        {
            "instance": both["instance_a"],
            **{name: both[name] for name in _KEY[1:]},
            "status_a": both["status_a"],
            "status_b": both["status_b"],
            "makespan_a_s": both["makespan_s_a"],
            "makespan_b_s": both["makespan_s_b"],
            "ratio": ratio,
            "verdict": [
                _verdict(*values) for values in zip(both["status_a"], both["status_b"], ratio, strict=True)
            ],
        }
    )
    return Comparison(cells, len(a) - len(both), len(b) - len(both))


def _keyed(folder: Path) -> pd.DataFrame:
    """Return what is compared of a study; plans that do not hold have no makespan."""
    frame = load_results(folder)
    if frame.empty:
        raise InputError("no cell is finished yet; run the study first", source=str(folder))
    frame["limit"] = limit_column(frame)
    frame.loc[frame["status"] != "ok", "makespan_s"] = np.nan
    return frame[[*_KEY, "instance", "status", "makespan_s"]]


def _verdict(status_a: str, status_b: str, ratio: float) -> str:
    if status_a != "ok" or status_b != "ok":
        return (
            "both failed"
            if status_a != "ok" and status_b != "ok"
            else "better"
            if status_b == "ok"
            else "worse"
        )
    if abs(ratio - 1) <= ROUNDING:
        return "same"
    return "better" if ratio < 1 else "worse"


def _sum(method: str, rows: pd.DataFrame) -> MethodComparison:
    counts = rows["verdict"].value_counts()
    logs = np.log(rows["ratio"].dropna()).groupby(rows["instance"]).mean()
    return MethodComparison(
        method,
        int(counts.get("better", 0)),
        int(counts.get("same", 0)),
        int(counts.get("worse", 0)),
        geometric_mean(np.exp(logs.to_numpy())),
    )
