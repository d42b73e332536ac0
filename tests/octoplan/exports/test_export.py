"""`export_plan` and `octoplan export`: every target's plan can be exported; errors are one line; no partial files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import octoplan
from octoplan.cli.app import run
from octoplan_schemas import save
from tests.octoplan.exports.samples import PROFILES, TARGETS, block_model, compiled, pair, profile_plan

FORMAT_OF = {"torch": "torch-csv", "torchtitan": "torchtitan", "megatron": "megatron"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROFILES)
def test_the_plan_of_a_target_can_be_exported_for_it(name: str, target: str, tmp_path: Path) -> None:
    plan, model, cluster = profile_plan(name, target)
    assert octoplan.check(plan, model, cluster) == []
    assert plan.provenance.model_dump()["target"] == target
    exported = octoplan.export_plan(plan, FORMAT_OF[target], tmp_path / "plan.csv", model=model)
    assert all(file.read_text() for file in exported.files)
    octoplan.export_plan(plan, "perfetto", tmp_path / "trace.json")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    model, cluster = block_model(6), pair(2)
    paths = {name: tmp_path / f"{name}.json" for name in ("model", "cluster", "plan")}
    save(paths["model"], model)
    save(paths["cluster"], cluster)
    save(paths["plan"], compiled(model, cluster, target="torchtitan", strategy="zb-v"))
    return paths


def test_the_command_names_what_it_has_written(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "schedule.csv"
    arguments = ["export", str(files["plan"]), "--to", "torchtitan", "-o", str(output)]
    assert run([*arguments, "--model", str(files["model"]), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"to": "torchtitan", "files": [str(output), str(tmp_path / "schedule.toml")]}
    assert all(Path(file).exists() for file in printed["files"])
    assert run([*arguments, "--model", str(files["model"])]) == 0
    assert capsys.readouterr().out.count("written for torchtitan") == 2


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        (["--to", "nemo"], 2, "'nemo' is not a format; there are: torch-csv"),
        (["--to", "torchtitan"], 2, "give --model"),
        (["--to", "megatron", "--model", "MODEL"], 1, "compile with --target megatron"),
    ],
)
def test_refusals_are_one_line_and_leave_no_file(
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    code: int,
    words: str,
) -> None:
    arguments = [str(files["model"]) if text == "MODEL" else text for text in extra]
    output = tmp_path / "out.txt"
    assert run(["export", str(files["plan"]), "-o", str(output), *arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert words in lines[0]
    assert not output.exists()


def test_an_invalid_plan_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    document = json.loads(files["plan"].read_text())
    document["programs"][0].pop()
    files["plan"].write_text(json.dumps(document))
    assert run(["export", str(files["plan"]), "--to", "torch-csv", "-o", str(tmp_path / "x.csv")]) == 2
    assert not (tmp_path / "x.csv").exists()


def test_if_the_second_file_cannot_be_written_the_first_is_taken_back(tmp_path: Path) -> None:
    model = block_model(6)
    plan = compiled(model, pair(2), strategy="1f1b")
    (tmp_path / "plan.toml").mkdir()
    with pytest.raises(octoplan.InputError):
        octoplan.export_plan(plan, "torchtitan", tmp_path / "plan.csv", model=model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.toml"]
