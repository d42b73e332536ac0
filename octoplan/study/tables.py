"""The report's tables as plain text cells, and their renderings as LaTeX and Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from octoplan.study.statistics import (
    DIMENSIONS,
    Estimate,
    dimension_values,
    dimension_worth,
    geometric_mean,
    makespans,
    speedup,
)

#: Gap up to which a plan counts as proved optimal.
_PROVED_GAP = 1e-6
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``name`` is its file's, and its first column names the rows."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def summary_table(frame: pd.DataFrame, references: Iterable[str]) -> Table:
    """Return one row per label: cells, speedups over all instances, gaps, idle time and seconds."""
    table = makespans(frame)
    references = list(references)
    rows = []
    for label, cells in frame.groupby("label", sort=False):
        solved = cells[cells["status"] == "ok"]
        gaps = solved["instance_gap"].dropna()
        rows.append(
            (
                str(label),
                f"{len(solved)} of {len(cells)}",
                *(_estimate(speedup(table, str(label), reference)) for reference in references),
                _percent(gaps.mean()),
                _percent(gaps.max()),
                f"{int((gaps <= _PROVED_GAP).sum())}",
                _percent(solved["bubble_fraction"].mean()),
                _seconds(solved["seconds_to_1pct"].median()),
                _seconds(solved["seconds"].median()),
            )
        )
    columns = (
        "method",
        "plans",
        *(f"speedup over {reference}" for reference in references),
        "mean gap",
        "worst gap",
        "optimal",
        "bubble",
        "to 1%",
        "total",
    )
    caption = (
        "All instances. Speedup: geometric mean over instances, with its 95% bootstrap interval and the number of "
        "instances that both solve. Gap: to the best bound that any method proves; optimal: plans that meet it. "
        "Bubble: mean share of idle time. "
        "Median seconds: to within 1% of the method's own final plan, and in total."
    )
    return Table("summary", caption, columns, tuple(rows))


def speedup_table(frame: pd.DataFrame, reference: str) -> Table:
    """Return speedups over one reference, by memory limit."""
    limits = list(frame["memory_limit"].unique())
    by_limit = {limit: makespans(frame[frame["memory_limit"] == limit]) for limit in limits}
    rows = tuple(
        (str(label), *(_estimate(speedup(by_limit[limit], str(label), reference)) for limit in limits))
        for label in frame["label"].unique()
    )
    caption = (
        f"Speedup over {reference} by memory limit: geometric mean, 95% bootstrap interval over instances, and the "
        "number of instances that both solve."
    )
    name = "speedup-over-" + re.sub(r"[^a-z0-9]+", "-", reference.lower()).strip("-")
    return Table(name, caption, ("method", *map(str, limits)), rows)


def dimension_table(frame: pd.DataFrame) -> Table | None:
    """Return what each dimension is worth, by memory limit; None unless the suite searches all subsets."""
    rows = []
    for limit in frame["memory_limit"].unique():
        table = dimension_values(frame[frame["memory_limit"] == limit])
        if table.empty or table.dropna().empty:
            continue
        for dimension in DIMENSIONS:
            worth = dimension_worth(table, dimension)
            rows.append((dimension, str(limit), *(_estimate(geometric_mean(gains)) for gains in worth)))
        together = table.dropna()
        total = geometric_mean((together["none"] / together["+".join(DIMENSIONS)]).to_numpy())
        rows.append(("all three", str(limit), "", "", _estimate(total)))
    if not rows:
        return None
    caption = (
        "What searching a dimension is worth: how many times shorter plans become, starting from 1F1B over a uniform "
        "partition. Alone; on top of the two others; and on average over the orders in which the three can be added "
        "(Shapley value), whose product is that of all three."
    )
    columns = ("dimension", "memory limit", "alone", "on top of the others", "on average")
    return Table("dimensions", caption, columns, tuple(rows))


def makespan_table(frame: pd.DataFrame) -> Table:
    """Return milliseconds by instance and label, the best of each instance marked by a star."""
    table = makespans(frame)
    best = table.min(axis=1)
    rows = []
    for instance, values in table.iterrows():
        cells = (
            "-" if math.isnan(value) else f"{value * 1e3:,.1f}" + ("*" if value <= best[instance] else "")
            for value in values
        )
        rows.append((str(instance), *cells))
    caption = "Makespan in milliseconds; * is the shortest of its instance, - means no plan."
    return Table("makespans", caption, ("instance", *map(str, table.columns)), tuple(rows))


def failure_table(frame: pd.DataFrame) -> Table:
    """Return every cell without a plan that holds, the wrong ones first."""
    failed = frame[frame["status"] != "ok"]
    failed = failed.sort_values("status", key=lambda status: status != "wrong", kind="stable")
    rows = tuple(
        (row.status, row.instance, row.label, str(row.seed), _seconds(row.seconds), row.message)
        for row in failed.itertuples()
    )
    columns = ("status", "instance", "method", "seed", "after", "why")
    return Table("failures", f"{len(rows)} of {len(frame)} cells have no plan.", columns, rows)


def to_latex(table: Table) -> str:
    """Return a ``table`` environment with booktabs rules; every name is escaped."""
    head = " & ".join(escape_latex(column) for column in table.columns)
    body = "\n".join(" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in table.rows)
    alignment = "l" + "r" * (len(table.columns) - 1)
    return (
        "% needs \\usepackage{booktabs}\n\\begin{table}\n\\centering\n"
        f"\\caption{{{escape_latex(table.caption)}}}\n\\label{{tab:{table.name}}}\n"
        f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def to_markdown(table: Table) -> str:
    """Return a Markdown table; what could be markup is escaped."""
    lines = [table.columns, tuple(["---"] * len(table.columns)), *table.rows]
    return (
        "\n".join("| " + " | ".join(_escape_markdown(cell) for cell in line) + " |" for line in lines) + "\n"
    )


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it is; letters that it may not know become question marks."""
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return "".join(_LATEX.get(letter, letter) for letter in plain)


def _escape_markdown(text: str) -> str:
    escaped = re.sub(r"([\\`*_\[\]|])", r"\\\1", text) if text != "---" else text
    return escaped.replace("<", "&lt;").replace("\n", " ")


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return f"{estimate.mean:.2f} ({estimate.low:.2f} to {estimate.high:.2f}, n = {estimate.count})"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"
