"""Writing a frontier: a folder with everything, or one file by its ending."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from octoplan.frontier.frontier import Frontier, row
from octoplan.report.figure import figure_bytes
from octoplan.report.frontier_figure import FrontierPicture, frontier_figure
from octoplan_schemas import InputError, save
from octoplan_schemas.files import write_bytes, write_text

#: Endings of single files; any other name is a folder.
ENDINGS = (".json", ".csv", ".svg", ".png")


def require_frontier_output(path: Path) -> None:
    """Refuse an output that cannot be written before the long work.

    Raises
    ------
    InputError
        If the folder above it is not there, or something else stands in its place.
    """
    if not path.parent.is_dir():
        raise InputError("cannot be written: its folder does not exist", source=str(path))
    if path.suffix in ENDINGS and path.is_dir():
        raise InputError("is a folder; give a file name, or a folder without an ending", source=str(path))
    if path.suffix not in ENDINGS and path.exists() and not path.is_dir():
        raise InputError(
            f"is a file; give a folder, or a file name that ends in {', '.join(ENDINGS)}", source=str(path)
        )


def write_frontier(frontier: Frontier, path: Path) -> list[Path]:
    """Write a frontier and return the files.

    Parameters
    ----------
    path:
        Ends in ``.json``, ``.csv``, ``.svg`` or ``.png``: that alone. Else a folder, made if it is not there, for
        ``frontier.json``, ``.csv``, ``.svg`` and the plan of every point, ``point-01.json`` and so on.
    """
    if path.suffix in ENDINGS:
        _write(frontier, path, [])
        return [path]
    path.mkdir(exist_ok=True)
    names = [f"point-{number:02d}.json" for number in range(1, len(frontier.points) + 1)]
    for name, point in zip(names, frontier.points, strict=True):
        save(path / name, point.plan)
    summaries = [path / f"frontier{ending}" for ending in (".json", ".csv", ".svg")]
    for summary in summaries:
        _write(frontier, summary, names)
    return [*summaries, *(path / name for name in names)]


def _write(frontier: Frontier, path: Path, plan_files: list[str]) -> None:
    if path.suffix == ".json":
        write_text(path, json.dumps(frontier.to_document(plan_files), indent=2, allow_nan=False) + "\n")
    elif path.suffix == ".csv":
        write_text(path, _csv(frontier, plan_files))
    else:
        write_bytes(path, figure_bytes(frontier_figure(_picture(frontier)), path.suffix[1:]))


def _csv(frontier: Frontier, plan_files: list[str]) -> str:
    rows = [row(point) for point in frontier.points]
    for entry, name in zip(rows, plan_files, strict=False):
        entry["plan"] = name
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _picture(frontier: Frontier) -> FrontierPicture:
    scale, label = {
        "share": (100.0, "memory of the fullest device (%)"),
        "bytes": (2.0**-30, "memory of the fullest device (GiB)"),
        "1f1b": (1.0, "memory for activations, in multiples of balanced 1F1B's"),
    }[frontier.unit]
    plan = frontier.plan
    return FrontierPicture(
        title=f"{plan.model.name} on {plan.cluster.name}, {plan.job.microbatches} microbatches",
        memory_label=label,
        points=tuple(
            (scale * point.memory, point.makespan_s, point.lower_bound_s) for point in frontier.points
        ),
        baselines=tuple((one.strategy, scale * one.memory, one.makespan_s) for one in frontier.baselines),
        job_limit=None if frontier.job_limit is None else scale * frontier.job_limit,
    )
