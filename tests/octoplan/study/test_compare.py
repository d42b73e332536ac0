"""Comparisons: cell by cell, by status and makespan."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from octoplan.cli import app
from octoplan.study import compare_studies
from octoplan_schemas import InputError


def changed(finished: Path, folder: Path, **factor: float) -> Path:
    """Return a copy in which the makespans of some methods are so many times longer; 0 takes the plan away."""
    shutil.copytree(finished, folder)
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    for line in lines:
        times = factor.get(line["method"], 1.0)
        if times == 0:
            line |= {
                "status": "infeasible",
                "makespan_s": None,
                "backward": None,
                "max_stages_per_device": None,
            }
        else:
            line["makespan_s"] *= times
            line["lower_bound_s"] *= min(times, 1.0)
    (folder / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def by_method(first: Path, second: Path) -> dict[str, Any]:
    return {entry.method: entry for entry in compare_studies(first, second).methods}


def test_a_study_is_the_same_as_itself(finished: Path) -> None:
    found = by_method(finished, finished)
    assert all((entry.better, entry.worse) == (0, 0) for entry in found.values())
    assert found["all"].same == len((finished / "cells.jsonl").read_text().splitlines())
    assert found["octoplan"].ratio.mean == 1.0


def test_better_and_worse_are_told_by_method(finished: Path, tmp_path: Path) -> None:
    other = changed(finished, tmp_path / "b", dp=1.1, order=0.8, rule=0.0)
    comparison = compare_studies(finished, other)
    found = {entry.method: entry for entry in comparison.methods}
    assert found["dp"].worse == 4
    assert found["dp"].ratio.mean == pytest.approx(1.1)
    assert found["order"].better == 4
    assert found["order"].ratio.mean == pytest.approx(0.8)
    assert found["rule"].worse == 4
    assert found["rule"].ratio is None
    assert found["1f1b"].same == 2
    assert comparison.worst_ratio == math.inf
    first = comparison.changed(20)
    assert set(first["method"][:4]) == {"rule"}
    assert set(first["method"][4:8]) == {"order"}
    back = by_method(other, finished)
    assert back["rule"].better == 4
    assert compare_studies(finished, changed(finished, tmp_path / "c", dp=1.1)).worst_ratio == pytest.approx(
        1.1
    )


def test_the_command_prints_both_forms_and_can_fail(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = changed(finished, tmp_path / "b", dp=1.1)
    words = ["study", "compare", str(finished), str(other)]
    assert app.run(words) == 0
    text = capsys.readouterr().out
    assert "worse" in text
    assert "1.1000" in text
    assert app.run([*words, "--json", "--fail-above", "15"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [cell["verdict"] for cell in document["cells"]].count("worse") == 4
    assert app.run([*words, "--fail-above", "5"]) == 1


def test_studies_of_other_questions_cannot_be_compared(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / "b"
    shutil.copytree(finished, other)
    text = (other / "cells.jsonl").read_text().replace('"instance_sha256":"', '"instance_sha256":"0')
    (other / "cells.jsonl").write_text(text)
    with pytest.raises(InputError, match="share no cell"):
        compare_studies(finished, other)
    with pytest.raises(InputError, match="holds no study"):
        compare_studies(finished, tmp_path)
