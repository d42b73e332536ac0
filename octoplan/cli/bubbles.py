"""Idle time by rank and cause as a table."""

from __future__ import annotations

from rich.table import Table

from octoplan.cli.console import seconds
from octoplan.simulator import BubbleReport, BubbleRow, Cause


def bubble_table(report: BubbleReport) -> Table:
    """Return a table with one row per rank and one for all: idle time by cause, and in the two usual divisions.

    The causes add up to the idle time; so do edges and gaps, and so do the last three columns.
    """
    table = Table(title="idle time by cause, by edges and gaps, and by global times", title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("idle", justify="right", style="bold")
    for column in (*Cause, "edges", "gaps", "global filling", "residual", "global draining"):
        table.add_column(str(column), justify="right")
    *rows, total = report.rows()
    for row in rows:
        table.add_row(*_cells(row))
    table.add_section()
    table.add_row(*_cells(total))
    return table


def _cells(row: BubbleRow) -> list[str]:
    values = (row.idle_s, *row.by_cause_s, *row.by_rank_s, *row.by_global_times_s)
    return ["all" if row.rank is None else str(row.rank), *(seconds(value) for value in values)]
