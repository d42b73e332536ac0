"""Cells that fail are recorded, each as what it is, and the study goes on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from octoplan.study import StudyOptions, load_results, run_study, write_report
from tests.octoplan.study.suites import make_suite, write_suite

PLUGIN = Path(__file__).with_name("misbehaving.py")
NAMES = ("crash", "leave", "sleep", "swell", "fail", "chatter", "miss", "claim", "give_up")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a study in which every solver of the plugin has had its cell, and a good one the last."""
    folder = tmp_path_factory.mktemp("failures")
    methods = [{"name": name, "solver": name} for name in NAMES]
    methods += [{"name": "dualpipe-v", "strategy": "dualpipe-v"}, {"name": "good", "search": ["partition"]}]
    suite = make_suite(
        methods, cell={"time_s": 4, "memory_bytes": 8e8}, max_evaluations=[], time_limits_s=[0.2]
    )
    run_study(write_suite(folder, suite), folder / "study", StudyOptions(plugins=(PLUGIN,), jobs=1))
    return folder / "study"


@pytest.fixture(scope="module")
def rows(folder: Path) -> pd.DataFrame:
    return load_results(folder).set_index("method")


@pytest.mark.parametrize(
    ("method", "status", "told"),
    [
        ("crash", "crash", "signal 11"),
        ("leave", "crash", "exit code 7"),
        ("sleep", "timeout", "time"),
        ("swell", "memory", "800,000,000 bytes"),
        ("fail", "error", "RuntimeError: on <b>purpose</b>"),
        ("chatter", "ok", ""),
        ("miss", "wrong", "not allowed"),
        ("claim", "wrong", "above"),
        ("give_up", "infeasible", "unknown"),
        ("dualpipe-v", "refused", "microbatches"),
        ("good", "ok", ""),
    ],
)
def test_every_failure_is_recorded_as_what_it_is(
    rows: pd.DataFrame, method: str, status: str, told: str
) -> None:
    assert rows.status[method] == status, rows.message[method]
    assert told in rows.message[method]
    assert (rows.makespan_s.notna() == rows.status.isin(("ok", "wrong")))[method] or method == "miss"


def test_a_wrong_bound_spoils_no_other_row(rows: pd.DataFrame) -> None:
    sound = rows[rows.status == "ok"]
    assert (sound.instance_bound_s < 0.9).all()
    assert (sound.instance_gap >= 0).all()
    assert (sound.lower_bound_s <= sound.makespan_s).all()


def test_the_report_shows_failures_in_words_and_in_red(folder: Path) -> None:
    page = write_report(folder).read_text()
    assert '<th scope="row" class="wrong">wrong</th>' in page
    assert "2 cells are wrong" in page
    assert "on &lt;b&gt;purpose&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "9 of 11 cells have no plan." in page
