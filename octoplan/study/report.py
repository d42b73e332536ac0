"""The report of a study: one self-contained HTML page, and the same tables and pictures for a paper."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from octoplan.study.answer import STATUSES
from octoplan.study.figures import Picture, draw_pictures
from octoplan.study.methods import kind_of
from octoplan.study.results import load_results, load_trace, write_results
from octoplan.study.statistics import label_column
from octoplan.study.store import read_order, read_suite
from octoplan.study.tables import (
    Table,
    dimension_table,
    failure_table,
    makespan_table,
    speedup_table,
    summary_table,
    to_latex,
    to_markdown,
)
from octoplan_schemas import InputError, Study
from octoplan_schemas.files import write_bytes, write_text

#: The page; beside it ``tables/`` and ``figures/``.
PAGE = "report.html"


@dataclass(frozen=True)
class Report:
    """Everything that a report shows."""

    suite: Study
    frame: pd.DataFrame
    num_cells: int
    tables: dict[str, Table]
    speedups: list[Table]
    pictures: list[Picture]


def write_report(folder: str | Path) -> Path:
    """Write results, report, LaTeX tables and PDF pictures of what a study has finished so far.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If the folder holds no study, or nothing is finished yet.
    """
    folder = Path(folder)
    write_results(folder)
    report = _build(folder)
    tables = [*report.tables.values(), *report.speedups]
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
    for table in tables:
        write_text(folder / "tables" / f"{table.name}.tex", to_latex(table))
        write_text(folder / "tables" / f"{table.name}.md", to_markdown(table))
    for picture in report.pictures:
        write_bytes(folder / "figures" / f"{picture.name}.pdf", picture.pdf())
    write_text(folder / PAGE, _page(report))
    return folder / PAGE


def _build(folder: Path) -> Report:
    suite, frame, trace = read_suite(folder), load_results(folder), load_trace(folder)
    if frame.empty:
        raise InputError("no cell is finished yet; run the study first", source=str(folder))
    frame["label"] = label_column(frame)
    references = [name for name in suite.references if (frame["method"] == name).any()]
    dimensions = dimension_table(frame)
    tables = {
        "summary": summary_table(frame, references),
        "failures": failure_table(frame),
        "makespans": makespan_table(frame),
        **({} if dimensions is None else {"dimensions": dimensions}),
    }
    speedups = [speedup_table(frame, reference) for reference in references]
    pictures = draw_pictures(frame, trace, references)
    return Report(suite, frame, len(read_order(folder)), tables, speedups, pictures)


def _page(report: Report) -> str:
    """Fill the template; every text is escaped, for names come from strangers."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    found = set(report.frame["status"])
    return environment.get_template("report.html.j2").render(
        suite=report.suite,
        facts=_facts(report),
        sections=_sections(report),
        num_wrong=int((report.frame["status"] == "wrong").sum()),
        summary=report.tables["summary"],
        speedups=report.speedups,
        dimensions=report.tables.get("dimensions"),
        pictures=[_embedded(picture) for picture in report.pictures],
        failures=report.tables["failures"],
        statuses=[(name, text) for name, text in STATUSES.items() if name != "ok" and name in found],
        makespans=report.tables["makespans"],
        methods=_methods(report.suite),
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    suite, frame = report.suite, report.frame
    counts = frame["status"].value_counts()
    seeds = ", ".join(map(str, suite.seeds))
    limits = [f"{seconds:g} s" for seconds in suite.time_limits_s] or ["10 s"]
    if suite.max_evaluations:
        limits = [f"{count:,} evaluations" for count in suite.max_evaluations]
    return [
        ("cells", f"{len(frame):,} of {report.num_cells:,} finished: " + _counted(counts)),
        ("instances", f"{frame['instance'].nunique():,}"),
        ("methods", f"{len(suite.methods)}; every search gets {', '.join(limits)} unless it says otherwise"),
        ("seeds", f"{seeds}; {suite.repetitions} repetition{'s' if suite.repetitions > 1 else ''}"),
        ("suite", f"{suite.name}, version {suite.version}"),
        ("machine", "; ".join(frame["machine"].unique())),
        ("versions", "; ".join(frame["versions"].unique())),
        ("finished", f"{frame['finished_at'].min()} to {frame['finished_at'].max()}"),
    ]


def _counted(counts: pd.Series) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in STATUSES if name in counts)


def _sections(report: Report) -> list[tuple[str, str]]:
    return [
        ("summary", "Summary"),
        *([("speedups", "Speedups")] if report.speedups else []),
        *([("dimensions", "Dimensions")] if "dimensions" in report.tables else []),
        *((picture.name, picture.title) for picture in report.pictures),
        ("failures", "Failures"),
        ("instances", "Instances"),
        ("methods", "Methods"),
    ]


def _embedded(picture: Picture) -> dict[str, Any]:
    """Return a picture as a data URI: nothing inside it can run or clash with the page."""
    data = base64.b64encode(picture.svg().encode()).decode()
    return {
        "name": picture.name,
        "title": picture.title,
        "caption": picture.caption,
        "uri": f"data:image/svg+xml;base64,{data}",
    }


def _methods(suite: Study) -> Table:
    rows = tuple(
        (
            method.name,
            kind_of(method),
            method.strategy
            or method.solver
            or method.rule
            or "+".join(method.search or ())
            or "starting plan",
            json.dumps(method.options) if method.options else "",
        )
        for method in suite.methods
    )
    columns = ("method", "kind", "what it is", "options")
    return Table("methods", "Methods as the suite defines them.", columns, rows)
