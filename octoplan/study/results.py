"""The results of a study as a table: one row per cell, and the anytime trace as a second table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from octoplan.study.bound_check import cross_check
from octoplan.study.store import finished_records, read_suite
from octoplan_schemas.files import write_bytes

#: Files that `write_results` makes.
RESULTS = ("results.parquet", "results.csv", "trace.parquet")
_TEXT = ("message", "binding_bound", "backward", "dimensions")
_NUMBERS = (
    "time_limit_s",
    "max_evaluations",
    "makespan_s",
    "lower_bound_s",
    "gap",
    "instance_bound_s",
    "instance_gap",
    "bubble_fraction",
    "peak_bytes",
    "peak_dynamic_bytes",
    "num_stages",
    "max_stages_per_device",
    "seconds_to_first",
    "seconds_to_1pct",
    "seconds",
)
#: Of a record, what is no column of the results.
_DROPPED = ("trace", "parameters", "job_options")
_TRACE = ("seconds", "makespan_s", "lower_bound_s", "evaluations")


def load_results(folder: str | Path) -> pd.DataFrame:
    """Return one row per finished cell, in the suite's order.

    Columns are described in ``docs/studies.md``. Seconds and bytes throughout; a number that is not there is NaN.

    Raises
    ------
    InputError
        If the folder holds no study, or its files are damaged.
    """
    folder = Path(folder)
    suite = read_suite(folder)
    rows = []
    for record in cross_check(finished_records(folder)):
        row = {name: value for name, value in record.items() if name not in _DROPPED}
        dials = {_dial(name): value for name, value in record["parameters"].items()}
        rows.append({"suite": suite.name, "suite_version": suite.version, **row, **dials})
    frame = pd.DataFrame(rows)
    for name in _NUMBERS:
        if name in frame:
            frame[name] = frame[name].astype(float)
    for name in _TEXT:
        if name in frame:
            frame[name] = frame[name].fillna("").astype(str)
    return frame


def load_trace(folder: str | Path) -> pd.DataFrame:
    """Return one row per improvement: cell, seconds since its start, makespan, bound, evaluations."""
    rows: list[dict[str, Any]] = []
    for record in finished_records(Path(folder)):
        head = {name: record[name] for name in ("cell", "instance", "method", "seed", "repetition")}
        rows += [{**head, **dict(zip(_TRACE, entry, strict=True))} for entry in record["trace"]]
    frame = pd.DataFrame(rows, columns=["cell", "instance", "method", "seed", "repetition", *_TRACE])
    return frame.astype(dict.fromkeys(_TRACE, float))


def write_results(folder: str | Path) -> None:
    """Write `RESULTS` into the study's folder."""
    folder = Path(folder)
    results, trace = load_results(folder), load_trace(folder)
    write_bytes(folder / "results.parquet", results.to_parquet(index=False))
    write_bytes(folder / "results.csv", results.to_csv(index=False).encode())
    write_bytes(folder / "trace.parquet", trace.to_parquet(index=False))


def _dial(name: str) -> str:
    """Name the column of a random instance's dial; its layers and ranks have columns already."""
    return {"seeds": "instance_seed", "layers": "body_layers", "ranks": "ranks"}.get(name, name)
