"""Idle time by rank as tables: by cause, and in the two usual divisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from octoplan.simulator import BubbleReport, BubbleRow, Cause


def bubble_table(report: BubbleReport) -> Table:
    """Return idle milliseconds by rank and cause; a row's causes add up to its idle time."""
    return _table(report, "idle time by cause, ms", [*Cause], lambda row: row.by_cause_s)


def division_table(report: BubbleReport) -> Table:
    """Return the same idle time by edges and inner gaps of each rank, and by global times."""
    columns = ["edges", "gaps", "filling", "residual", "draining"]
    title = "idle time by edges and gaps of each rank, and by global times, ms"
    return _table(report, title, columns, lambda row: (*row.by_rank_s, *row.by_global_times_s))


def _table(
    report: BubbleReport,
    title: str,
    columns: Sequence[str],
    values_of: Callable[[BubbleRow], tuple[float, ...]],
) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in ("rank", "idle", *columns):
        table.add_column(column, justify="right")
    for row in report.rows():
        if row.rank is None:
            table.add_section()
        name = "all" if row.rank is None else str(row.rank)
        table.add_row(name, *(f"{value * 1e3:,.2f}" for value in (row.idle_s, *values_of(row))))
    return table
