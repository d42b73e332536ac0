"""``octoplan explain`` and ``octoplan compile --frontier``, as people and scripts use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octoplan.cli import console
from octoplan.cli.app import run
from octoplan_schemas import save
from tests.builders import make_cluster, uniform_model


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, a cluster and a plan on disk."""
    folder = tmp_path_factory.mktemp("inputs")
    files = {name: folder / f"{name}.json" for name in ("model", "cluster", "plan")}
    save(files["model"], uniform_model(4, state_bytes=10.0, activation_bytes=2.0, output_bytes=1.0))
    save(files["cluster"], make_cluster(2, latency_s=0.05, memory_bytes=100.0))
    assert run(compile_arguments(files)) == 0
    return files


def compile_arguments(files: dict[str, Path], *extra: str) -> list[str]:
    given = ["--model", str(files["model"]), "--cluster", str(files["cluster"]), "-o", str(files["plan"])]
    counts = ["--microbatches", "4", "--max-evaluations", "60", "--max-stages-per-device", "1"]
    return ["compile", *given, *counts, *extra]


def explain_arguments(files: dict[str, Path], *extra: str) -> list[str]:
    given = ["--model", str(files["model"]), "--cluster", str(files["cluster"]), "--max-evaluations", "60"]
    return ["explain", str(files["plan"]), *given, *extra]


def test_explain_prints_the_same_data_for_people_and_scripts(
    inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(explain_arguments(inputs, "--json")) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert run(explain_arguments(inputs)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"makespan {console.seconds(document['makespan_s'])}" in text
    assert document["bounds"][0]["because"] in text
    assert document["binding_bound"] == document["bounds"][0]["name"]
    for what_if in document["what_ifs"]:
        assert what_if["change"] in text
        assert f"{console.seconds(what_if['makespan_s'])} {what_if['gain']:.2%}" in text
    for part in ("idle time by cause", "what holds it back", "critical path", "heaviest layer: l0", "memory"):
        assert part in text


def test_explain_refuses_another_model(
    inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    save(other, uniform_model(5))
    assert run(explain_arguments({**inputs, "model": other})) == 2
    line = capsys.readouterr().err.strip()
    assert "model.sha256" in line
    assert str(inputs["plan"]) in line


@pytest.mark.parametrize("extra", [["--time-limit", "-1"], ["--max-evaluations", "0"], ["--seed", "-1"]])
def test_explain_refuses_bad_options(
    extra: list[str], inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(explain_arguments(inputs, *extra)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_folder_for_everything(
    inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trade-off"
    assert run(compile_arguments(inputs, "--frontier", str(out))) == 0
    shown = capsys.readouterr().out
    document = json.loads((out / "frontier.json").read_text())
    names = [point["plan"] for point in document["points"]]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["frontier.csv", "frontier.json", "frontier.svg", *names]
    )
    for point in document["points"]:
        assert point["memory_limit"] in shown
        arguments = ["check", str(out / point["plan"]), "--model", str(inputs["model"])]
        assert run([*arguments, "--cluster", str(inputs["cluster"])]) == 0
    plan = json.loads(inputs["plan"].read_text())
    assert plan["predicted"]["makespan_s"] in [point["makespan_s"] for point in document["points"]]


@pytest.mark.parametrize("ending", ["csv", "png"])
def test_one_file_by_its_ending(ending: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / f"trade-off.{ending}"
    assert run(compile_arguments(inputs, "--frontier", str(out), "--json")) == 0
    assert list(tmp_path.iterdir()) == [out]
    assert out.read_bytes().startswith({"csv": b"memory,", "png": b"\x89PNG"}[ending])


def test_json_holds_the_frontier(
    inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trade-off.json"
    assert run(compile_arguments(inputs, "--frontier", str(out), "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["feasible"] is True
    assert printed["frontier"]["format"] == "octoplan.frontier/1"
    assert printed["frontier"] == json.loads(out.read_text())


def test_outputs_that_cannot_be_are_refused_before_the_search(
    inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "folder.svg").mkdir()
    for name, expected in (
        ("absent/out", "folder does not exist"),
        ("taken", "is a file"),
        ("folder.svg", "is a folder"),
    ):
        assert run(compile_arguments(inputs, "--frontier", str(tmp_path / name))) == 2
        assert expected in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_gap_as_a_flag(inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(compile_arguments(inputs, "--gap", "2%")) == 0
    assert run(compile_arguments(inputs, "--gap", "wide")) == 2
    assert "gap" in capsys.readouterr().err


def test_gap_in_a_job_file(
    inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("format: octoplan.job/1\ngap: 2%\n")
    assert run(compile_arguments(inputs, "--job", str(job))) == 0
    job.write_text("format: octoplan.job/1\ngap: wide\n")
    assert run(compile_arguments(inputs, "--job", str(job))) == 2
    assert "gap" in capsys.readouterr().err
