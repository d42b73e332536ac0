"""No result counts on a worker's word: plans are checked and simulated again, by the study itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from octoplan.checking import check, is_feasible, simulate
from octoplan.compiler import recorded_limit
from octoplan.plan_writer import relative_gap
from octoplan.simulator import Simulation
from octoplan.study.cells import Cell
from octoplan_schemas import InputError, Plan

#: Columns that come from a plan, and are empty without one.
_PLAN_COLUMNS = (
    "makespan_s",
    "lower_bound_s",
    "binding_bound",
    "gap",
    "bubble_fraction",
    "peak_bytes",
    "peak_dynamic_bytes",
    "num_stages",
    "backward",
    "max_stages_per_device",
    "seconds_to_first",
    "seconds_to_1pct",
)


def record_of(cell: Cell, outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the line that the store keeps: the question, and what holds of the worker's answer."""
    status, message = outcome["status"], outcome.get("message", "")
    columns: dict[str, Any] = {}
    trace = outcome["trace"]
    if status == "ok":
        status, message, columns = _plan_columns(cell, outcome["plan"], trace, outcome["seconds"])
    return {
        **cell.columns(),
        "status": status,
        "message": message,
        **dict.fromkeys(_PLAN_COLUMNS),
        **columns,
        "seconds": outcome["seconds"],
        "worker_peak_bytes": outcome["worker_peak_bytes"],
        "machine": outcome["machine"],
        "versions": outcome["versions"],
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "trace": trace,
    }


def _plan_columns(
    cell: Cell, document: Any, trace: list[list[float | None]], seconds: float
) -> tuple[str, str, dict[str, Any]]:
    """Return status, message and columns of a plan; the columns also of a wrong one, as far as it can be run."""
    try:
        plan = Plan.from_document(document)
        faults = [
            *_job_faults(cell, plan),
            *map(str, check(plan, cell.instance.model, cell.instance.cluster)),
        ]
        simulation = simulate(plan, cell.instance.model, cell.instance.cluster)
    except InputError as error:
        return "wrong", str(error), {}
    if not is_feasible(simulation) and not faults:
        faults = ["a rank's memory is above its limit"]
    columns = {**_simulated(plan, simulation), **_times(trace, simulation.makespan_s, seconds)}
    return ("wrong", faults[0], columns) if faults else ("ok", "", columns)


def _job_faults(cell: Cell, plan: Plan) -> list[str]:
    """Say where a plan answers another question than the cell's."""
    options = cell.options
    asked = {"microbatches": options.microbatches, "memory_limit": recorded_limit(options.memory_limit)}
    return [
        f"job.{field} is {getattr(plan.job, field)!r}, but {value!r} was asked for"
        for field, value in asked.items()
        if getattr(plan.job, field) != value
    ]


def _simulated(plan: Plan, simulation: Simulation) -> dict[str, Any]:
    """Return what the simulation says, and the bound that the plan claims."""
    bound = plan.predicted.lower_bound_s
    peaks = simulation.memory.peak_bytes
    return {
        "makespan_s": simulation.makespan_s,
        "lower_bound_s": bound,
        "binding_bound": plan.predicted.binding_bound,
        "gap": None if bound is None else relative_gap(simulation.makespan_s, bound),
        "bubble_fraction": simulation.bubble_fraction,
        "peak_bytes": float(peaks.max()),
        "peak_dynamic_bytes": float((peaks - simulation.schedule.staged.state_bytes).max()),
        "num_stages": len(plan.stages),
        "backward": plan.job.backward,
        "max_stages_per_device": plan.job.max_stages_per_device,
    }


def _times(trace: list[list[float | None]], makespan_s: float, seconds: float) -> dict[str, Any]:
    """Return the seconds to the first plan, and to one within 1% of the final one."""
    close = [entry[0] for entry in trace if entry[1] is not None and entry[1] <= 1.01 * makespan_s]
    return {
        "seconds_to_first": trace[0][0] if trace else seconds,
        "seconds_to_1pct": close[0] if close else seconds,
    }
