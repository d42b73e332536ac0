"""``octoplan study SUITE -o DIR``, and ``octoplan study compare A B``, ``report DIR``, ``list``."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from typer.core import TyperGroup

from octoplan.cli import console
from octoplan.cli import options as flags
from octoplan_schemas import InputError

if TYPE_CHECKING:
    from octoplan.study import Comparison, StudyProgress

#: Packages of the extra ``study``.
_NEEDED = ("jinja2", "joblib", "pandas", "pyarrow")
#: Changed cells that a comparison prints.
_SHOWN = 10


class _DefaultToRun(TyperGroup):
    """Takes a first argument that is no command for the suite of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` in front unless a command, or help, is asked for."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_DefaultToRun,
    help="Compare methods on many instances. octoplan study SUITE -o DIR is short for octoplan study run SUITE -o DIR.",
    add_completion=False,
    rich_markup_mode=None,
)


@app.command()
def run(
    suite: Annotated[str, typer.Argument(help="A suite file (octoplan.study/1), or a shipped suite's name.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Where results go; a study that stopped there is resumed."
        ),
    ],
    parallel: Annotated[
        str,
        typer.Option("--parallel", metavar="local|dask|ray[=ADDRESS]", help="What runs the cells."),
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", help="Cells at a time (default: half the cores here, or all of the cluster's)."
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin", metavar="FILE", help="A Python file of yours that defines a solver; it is run."
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="Folder of the suite's paths (default: the suite's own)."),
    ] = None,
    json_output: flags.Json = False,
) -> int:
    """Run a suite's missing cells, and write results and report."""
    study = _study()
    options = {"parallel": parallel, "jobs": jobs, "plugins": tuple(plugin or ()), "root": root}
    try:
        with _progress(quiet=json_output) as on_progress:
            study.run_study(suite, output, study.StudyOptions(**options, on_progress=on_progress))
    except KeyboardInterrupt:
        console.warn(
            f"interrupted; finished cells are kept. To go on: {_same_command(suite, output, options)}"
        )
        return 130
    return _report(output, json_output)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    json_output: flags.Json = False,
) -> int:
    """Write results and report again, of what is finished so far."""
    return _report(folder, json_output)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A study's folder: before.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="A study's folder: after.")],
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above", metavar="PERCENT", help="Exit with 1 if a cell's plan got this much longer."
        ),
    ] = None,
    json_output: flags.Json = False,
) -> int:
    """Tell cell by cell whether B's plans are better or worse than A's."""
    comparison = _study().compare_studies(first, second)
    if json_output:
        console.print_json(_comparison_json(comparison))
    else:
        _print_comparison(comparison)
    return 1 if fail_above is not None and comparison.worst_ratio > 1 + fail_above / 100 else 0


@app.command("list")
def list_suites(json_output: flags.Json = False) -> None:
    """List the shipped suites."""
    study = _study()
    suites = [study.load_suite(name) for name in study.shipped_suites()]
    if json_output:
        console.print_json([{"name": suite.name, "description": suite.description} for suite in suites])
        return
    table = Table(title="shipped suites", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it asks")
    for suite in suites:
        table.add_row(escape(suite.name), escape(suite.description))
    console.out.print(table)


def _same_command(suite: str, output: Path, options: dict[str, Any]) -> str:
    """Return the command that resumes a study."""
    words = ["octoplan", "study", suite, "-o", str(output)]
    words += [] if options["parallel"] == "local" else ["--parallel", options["parallel"]]
    words += [] if options["jobs"] is None else ["--jobs", str(options["jobs"])]
    words += [] if options["root"] is None else ["--root", str(options["root"])]
    for plugin in options["plugins"]:
        words += ["--plugin", str(plugin)]
    return shlex.join(words)


def _study() -> Any:
    """Return the package that does the work, or say what is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"octoplan study needs {', '.join(missing)}; install with: pip install 'octoplan[study]'"
        )
    import octoplan.study

    return octoplan.study


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[StudyProgress], None]]:
    """Show how many cells are finished, how many failed, and the time left."""
    if quiet or not console.err.is_terminal:
        yield lambda progress: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console.err, transient=True) as bar:
        task = bar.add_task("starting workers", total=None, left="")

        def show(progress: StudyProgress) -> None:
            bar.update(
                task,
                description=_describe(progress),
                total=progress.total,
                completed=progress.total - len(progress.missing),
                left=f"about {_duration(progress.seconds_left)} left",
            )

        yield show


def _describe(progress: StudyProgress) -> str:
    failed = sum(record["status"] != "ok" for record in progress.finished)
    last = f": {progress.finished[-1]['method']}" if progress.finished else ""
    return f"cells{last}" + (f" ({failed} without a plan)" if failed else "")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _report(folder: Path, json_output: bool) -> int:
    """Write the report and say in a line where it is; exit code 1 if a result is wrong."""
    study = _study()
    page = study.write_report(folder)
    statuses = study.load_results(folder)["status"].value_counts().to_dict()
    if json_output:
        console.print_json({"report": str(page), "cells": statuses})
    else:
        counts = ", ".join(f"{count:,} {status}" for status, count in statuses.items())
        console.out.print(f"{page}: {counts}", soft_wrap=True, highlight=False, markup=False)
    if "wrong" in statuses:
        console.fail(
            f"{statuses['wrong']} cells are wrong: a plan or bound does not hold; the report lists them"
        )
        return 1
    return 0


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "methods": [
            {
                "method": entry.method,
                "better": entry.better,
                "same": entry.same,
                "worse": entry.worse,
                "ratio": None if entry.ratio is None else entry.ratio.mean,
                "interval": None if entry.ratio is None else [entry.ratio.low, entry.ratio.high],
            }
            for entry in comparison.methods
        ],
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "cells": [
            {name: None if value != value else value for name, value in row.items()}
            for row in comparison.cells.to_dict("records")
        ],
    }


def _print_comparison(comparison: Comparison) -> None:
    table = Table(title="B's makespan as a multiple of A's, below 1 is better", title_justify="left")
    for column in ("method", "better", "same", "worse", "ratio", "95% interval"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for entry in comparison.methods:
        ratio = entry.ratio
        shown = ("-", "-") if ratio is None else (f"{ratio.mean:.4f}", f"{ratio.low:.4f} to {ratio.high:.4f}")
        table.add_row(escape(entry.method), str(entry.better), str(entry.same), str(entry.worse), *shown)
    console.out.print(table)
    changed = comparison.changed(_SHOWN)
    if len(changed):
        cells = Table(title="cells that changed most", title_justify="left")
        for column in ("verdict", "instance", "method", "seed", "A", "B"):
            cells.add_column(column)
        for row in changed.itertuples():
            before, after = (
                console.seconds(value) if status == "ok" else status
                for value, status in ((row.makespan_a_s, row.status_a), (row.makespan_b_s, row.status_b))
            )
            cells.add_row(*map(escape, (row.verdict, row.instance, row.method, str(row.seed), before, after)))
        console.out.print(cells)
    if comparison.only_a or comparison.only_b:
        console.out.print(
            f"not compared: {comparison.only_a} cells of A alone, {comparison.only_b} of B alone"
        )
