"""One finished study for all tests that only look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from octoplan.study import StudyOptions, run_study
from tests.octoplan.study.suites import broad_suite, write_suite


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study of `broad_suite` that nobody disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    run_study(write_suite(folder, broad_suite()), folder / "study", StudyOptions(jobs=2))
    return folder / "study"
