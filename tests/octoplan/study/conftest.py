"""One finished study for all tests that only look at it; plugins leave no trace in other tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octoplan.study import StudyOptions, run_study
from octoplan_solvers import registry
from tests.octoplan.study.suites import broad_suite, write_suite


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study of `broad_suite` that nobody disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    run_study(write_suite(folder, broad_suite()), folder / "study", StudyOptions(jobs=2))
    return folder / "study"


@pytest.fixture(scope="module", autouse=True)
def _own_solvers() -> Iterator[None]:
    """Take back what a module's plugins have registered."""
    before = dict(registry._ADDED)
    yield
    registry._ADDED.clear()
    registry._ADDED.update(before)
    for name in [name for name in sys.modules if name.startswith("octoplan_plugin_")]:
        del sys.modules[name]
