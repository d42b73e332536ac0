"""Run a study: the cells that are missing, in parallel, each on disk as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octoplan.study.cells import Cell, expand_cells
from octoplan.study.instances import expand_instances
from octoplan.study.methods import check_method
from octoplan.study.parallel import parallel_engine
from octoplan.study.plugins import Plugin, read_plugins
from octoplan.study.recheck import record_of
from octoplan.study.sources import Sources, suite_path
from octoplan.study.store import open_store
from octoplan.study.time_left import seconds_left
from octoplan.yaml_file import read_yaml_or_json
from octoplan_schemas import Study


@dataclass(frozen=True)
class StudyOptions:
    """How a study runs; none of it changes what is measured.

    Parameters
    ----------
    parallel:
        ``local``, ``dask``, ``dask=ADDRESS``, ``ray`` or ``ray=ADDRESS``.
    jobs:
        Cells at a time; None: half the cores here (a search uses two threads), or all that the other engine has.
    plugins:
        Files with solvers of the user's own.
    root:
        Folder of the suite's paths; None: that of the suite file.
    on_progress:
        Told before the first cell, and after each one, with its record.
    """

    parallel: str = "local"
    jobs: int | None = None
    plugins: tuple[str | Path, ...] = ()
    root: Path | None = None
    on_progress: Callable[[StudyProgress], None] = lambda progress: None


@dataclass
class StudyProgress:
    """How far a study is.

    Attributes
    ----------
    finished:
        Records of this run, in the order in which they were finished.
    missing:
        Cells that are left.
    """

    total: int
    jobs: int
    missing: dict[str, Cell]
    finished: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds_left(self) -> float:
        """An estimate of the time that the missing cells take."""
        return seconds_left(self.missing, self.finished, self.jobs)


def load_suite(suite: str | Path) -> Study:
    """Read a suite: a YAML or JSON file, or the name of a shipped one.

    Raises
    ------
    InputError
        If there is none, or it does not fit the schema.
    """
    path = suite_path(str(suite))
    return Study.from_document(read_yaml_or_json(path), source=str(path))


def study_cells(suite: str | Path, options: StudyOptions) -> tuple[Study, list[Cell], tuple[Plugin, ...]]:
    """Read a suite and its plugins, and expand it into cells; everything in it is checked."""
    plugins = read_plugins(options.plugins)
    study = load_suite(suite)
    for method in study.methods:
        check_method(method)
    root = options.root or suite_path(str(suite)).parent
    return study, expand_cells(study, expand_instances(study, Sources(root))), plugins


def run_study(suite: str | Path, folder: str | Path, options: StudyOptions | None = None) -> None:
    """Run the cells that ``folder`` does not have yet.

    Parameters
    ----------
    suite:
        A file, or the name of a shipped suite.
    folder:
        Where results go; a study that was stopped there is resumed.

    Raises
    ------
    InputError
        If suite, plugin or folder are bad.
    KeyboardInterrupt
        On Ctrl-C; what was finished stays.
    """
    options = options or StudyOptions()
    study, cells, plugins = study_cells(suite, options)
    order = [cell.id for cell in cells]
    with (
        open_store(Path(folder), study, order) as store,
        parallel_engine(options.parallel, options.jobs) as engine,
    ):
        missing = {cell.id: cell for cell in cells if cell.id not in store.records}
        progress = StudyProgress(len(cells), engine.jobs, missing)
        options.on_progress(progress)
        left = list(missing.values())
        for number, outcome in engine.run((cell.task() for cell in left), study.cell, plugins):
            cell = left[number]
            record = record_of(cell, outcome)
            store.append(record)
            progress.finished.append(record)
            del missing[cell.id]
            options.on_progress(progress)
