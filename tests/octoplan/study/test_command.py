"""The command line around studies."""

from __future__ import annotations

import json
import tomllib
from importlib.util import find_spec as real_find_spec
from pathlib import Path

import pytest

from octoplan.cli import app, study_command
from octoplan.study import StudyOptions, report, shipped_suites
from octoplan.study.runner import study_cells
from octoplan.study.time_left import seconds_left
from tests.octoplan.study.suites import broad_suite, make_suite, write_suite


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the report out: it takes seconds, and is looked at elsewhere."""
    monkeypatch.setattr(report, "write_report", lambda folder: Path(folder) / "report.html")


@pytest.mark.usefixtures("unwritten")
def test_a_suite_and_run_are_the_same(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = str(finished.parent / "suite.json")
    for words in (
        ["study", suite, "-o", str(finished)],
        ["study", "run", suite, "-o", str(finished), "--jobs", "1"],
    ):
        assert app.run([*words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document == {"report": str(finished / "report.html"), "cells": {"ok": document["cells"]["ok"]}}
    assert app.run(["study", "report", str(finished)]) == 0
    assert "report.html: " in capsys.readouterr().out


def test_options_may_come_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert app.run(["study", "-o", str(tmp_path / "x"), "nothing-of-this-name"]) == 2
    error = capsys.readouterr().err
    assert "neither a file nor a shipped suite" in error
    assert "smoke" in error
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("words", [["study"], ["study", "smoke"], ["study", "compare", "a"]])
def test_usage_errors_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(words) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_list_names_every_shipped_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["study", "list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == shipped_suites()


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        study_command.importlib.util,
        "find_spec",
        lambda name: None if name == "pandas" else real_find_spec(name),
    )
    assert app.run(["study", "list"]) == 2
    assert "octoplan study needs pandas" in capsys.readouterr().err


@pytest.mark.usefixtures("unwritten")
def test_a_wrong_result_is_exit_code_one(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("suite.json", "order.json"):
        (tmp_path / name).write_text((finished / name).read_text())
    lines = [json.loads(line) for line in (finished / "cells.jsonl").read_text().splitlines()]
    lines[0]["lower_bound_s"] = 10.0
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert app.run(["study", "report", str(tmp_path)]) == 1
    assert "1 cells are wrong" in capsys.readouterr().err


def test_time_left_is_what_the_methods_took_so_far(tmp_path: Path) -> None:
    cells = study_cells(write_suite(tmp_path, broad_suite()), StudyOptions())[1]
    missing = {cell.id: cell for cell in cells if cell.method.name in ("dp", "order")}
    finished = [{"method": "dp", "seconds": seconds} for seconds in (1.0, 3.0)]
    finished += [{"method": "order", "seconds": 5.0}]
    assert seconds_left(missing, finished, 2) == pytest.approx((4 * 2.0 + 4 * 5.0) / 2)
    timed = make_suite([{"name": "a", "strategy": "octoplan"}], max_evaluations=[], time_limits_s=[7])
    (cell,) = study_cells(write_suite(tmp_path, timed), StudyOptions())[1]
    assert seconds_left({cell.id: cell}, [], 1) == 7.0


def test_the_package_ships_every_file_that_studies_read() -> None:
    root = Path(__file__).parents[3]
    package = root / "octoplan" / "study"
    globs = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    shipped = {path for pattern in globs["octoplan.study"] for path in package.glob(pattern)}
    data = {
        path for path in package.rglob("*") if path.is_file() and path.suffix in (".json", ".yaml", ".j2")
    }
    assert data
    assert data <= shipped
