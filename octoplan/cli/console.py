"""What people see: tables on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from octoplan.frontier import Frontier
from octoplan.simulator import Simulation
from octoplan_schemas import Prediction
from octoplan_solvers.registry import SolverInfo

out = Console()
err = Console(stderr=True)


def print_json(document: Any) -> None:
    """Print one JSON value on standard output."""
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")


def fail(message: str) -> None:
    """Print one error line."""
    sys.stderr.write(f"octoplan: error: {' '.join(message.split())}\n")


def warn(message: str) -> None:
    """Print one warning line."""
    sys.stderr.write(f"octoplan: warning: {' '.join(message.split())}\n")


def note(message: str) -> None:
    """Print one line of news on standard error."""
    sys.stderr.write(f"octoplan: {' '.join(message.split())}\n")


def seconds(value: float | None) -> str:
    """Write a duration for people."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value * 1e3:,.2f} ms" if value < 10 else f"{value:,.3f} s"


def gibibytes(value: float | None) -> str:
    """Write a size for people."""
    return "-" if value is None else f"{value / 2**30:,.2f} GiB"


def percent(value: float | None) -> str:
    """Write a share for people."""
    return "-" if value is None else f"{value:.2%}"


def print_prediction(title: str, predicted: Prediction) -> None:
    """Print makespan, bound and bubble, and one row per rank."""
    table = Table(title=title, title_justify="left")
    for column in ("rank", "busy", "idle", "peak memory", "of it state", "limit"):
        table.add_column(column, justify="right")
    for rank, entry in enumerate(predicted.ranks):
        table.add_row(
            str(rank),
            seconds(entry.busy_s),
            seconds(entry.idle_s),
            gibibytes(entry.peak_bytes),
            gibibytes(entry.state_bytes),
            gibibytes(entry.limit_bytes),
        )
    out.print(table)
    bound = ""
    if predicted.lower_bound_s is not None:
        name = f" by {predicted.binding_bound}" if predicted.binding_bound else ""
        bound = (
            f"; no plan is faster than {seconds(predicted.lower_bound_s)}{name}: gap {percent(predicted.gap)}"
        )
    out.print(
        f"makespan {seconds(predicted.makespan_s)}, bubble fraction {percent(predicted.bubble_fraction)}{bound}",
        soft_wrap=True,
        highlight=False,
    )


def print_frontier(title: str, frontier: Frontier) -> None:
    """Print one row per point, least memory first."""
    table = Table(title=title, title_justify="left")
    for column in ("limit", "peak memory", "makespan", "bound", "gap", "bubbles"):
        table.add_column(column, justify="right")
    for point in frontier.points:
        bound = point.lower_bound_s
        table.add_row(
            point.memory_limit,
            gibibytes(point.peak_bytes),
            seconds(point.makespan_s),
            seconds(bound),
            percent(point.makespan_s / bound - 1 if bound > 0 else None),
            percent(point.plan.predicted.bubble_fraction),
        )
    out.print(table)


def print_solvers(infos: list[SolverInfo]) -> None:
    """Print one row per solver."""
    table = Table(title="placement solvers", title_justify="left")
    for column in ("name", "installed", "version", "minimises", "bound if stopped", "constraints"):
        table.add_column(column)
    for info in infos:
        table.add_row(
            info.name,
            "yes" if info.available else "no",
            info.version,
            info.objective,
            "yes" if info.bounds else "no",
            info.constraints,
        )
    out.print(table)


def prediction_json(
    predicted: Prediction, feasible: bool, simulation: Simulation | None = None
) -> dict[str, Any]:
    """Return what ``--json`` prints; the ops only if a simulation is given."""
    document: dict[str, Any] = predicted.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["feasible"] = feasible
    if simulation is not None:
        from octoplan.picture import word_times

        document["ops"] = word_times(simulation)
    return document
