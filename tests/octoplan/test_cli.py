"""The command line as scripts and strangers use it: exit codes, one line per error, no partial files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octoplan.cli.app import run
from octoplan_schemas import save
from tests.builders import make_cluster, uniform_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """A model and a cluster on disk, and the name of a plan."""
    files = {name: tmp_path / f"{name}.json" for name in ("model", "cluster", "plan")}
    save(files["model"], uniform_model(6, state_bytes=10.0, activation_bytes=2.0, output_bytes=1.0))
    save(files["cluster"], make_cluster(3, latency_s=0.01))
    return files


def compile_arguments(inputs: dict[str, Path], *extra: str) -> list[str]:
    files = ["--model", str(inputs["model"]), "--cluster", str(inputs["cluster"]), "-o", str(inputs["plan"])]
    return ["compile", *files, "--microbatches", "4", "--max-evaluations", "20", *extra]


def with_inputs(inputs: dict[str, Path], command: str, *extra: str) -> list[str]:
    files = ["--model", str(inputs["model"]), "--cluster", str(inputs["cluster"])]
    return [command, str(inputs["plan"]), *files, *extra]


@pytest.fixture
def plan(inputs: dict[str, Path]) -> dict[str, Any]:
    """A compiled plan as a JSON value."""
    assert run(compile_arguments(inputs)) == 0
    document: dict[str, Any] = json.loads(inputs["plan"].read_text())
    return document


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def test_compile_check_simulate_show(
    inputs: dict[str, Path], plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert next(iter(plan)) == "format"
    assert run(["check", str(inputs["plan"])]) == 0
    assert run(with_inputs(inputs, "check")) == 0
    capsys.readouterr()
    assert run(with_inputs(inputs, "simulate", "--json", "--timeline")) == 0
    printed = json.loads(capsys.readouterr().out)
    ops = printed.pop("ops")
    assert printed.pop("feasible") is True
    assert printed == plan["predicted"]
    sends = [word for program in plan["programs"] for word in program if "SEND" in word]
    assert len(ops) == sum("RECV" not in word for program in plan["programs"] for word in program)
    assert {row[1] for row in ops} >= set(sends)
    for ending in ("svg", "png", "html"):
        picture = inputs["plan"].with_suffix(f".{ending}")
        assert run(["show", str(inputs["plan"]), "-o", str(picture)]) == 0
        assert picture.stat().st_size > 1000


def test_compile_prints_json(inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(compile_arguments(inputs, "--json", "--strategy", "1f1b")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["feasible"] is True
    assert printed["makespan_s"] == pytest.approx((4 + 3 - 1) * 6 + 2 * 2 * 0.01, rel=0.01)


def test_model_command_writes_a_graph_that_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, plan_file = tmp_path / "model.json", tmp_path / "plan.json"
    config, cluster = EXAMPLES / "configs" / "llama3-8B.json", EXAMPLES / "clusters" / "h800x4.json"
    options = ["--cluster", str(cluster), "--granularity", "sublayer", "--json"]
    assert run(["model", str(config), "-o", str(graph), *options]) == 0
    assert json.loads(capsys.readouterr().out)["layers"] == 66
    arguments = ["compile", "--model", str(graph), "--cluster", str(cluster), "--microbatches", "8"]
    assert run([*arguments, "--max-evaluations", "5", "-o", str(plan_file)]) == 0


def broken(plan: dict[str, Any], how: str) -> dict[str, Any]:
    """Return the plan with one thing wrong."""
    program = plan["programs"][0]
    computes = [
        position for position, word in enumerate(program) if "SEND" not in word and "RECV" not in word
    ]
    if how == "missing op":
        del program[computes[2]]
    elif how == "doubled op":
        program.insert(computes[2], program[computes[2]])
    elif how == "swapped ops":
        last, first = computes[-1], computes[0]
        program[first], program[last] = program[last], program[first]
    elif how == "other rank":
        plan["programs"][1].append(program.pop(computes[0]))
    elif how == "junk word":
        program[0] = "0X0"
    return plan


@pytest.mark.parametrize("how", ["missing op", "doubled op", "swapped ops", "other rank", "junk word"])
def test_broken_programs(
    how: str, inputs: dict[str, Path], plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs["plan"].write_text(json.dumps(broken(plan, how)))
    capsys.readouterr()
    assert run(["check", str(inputs["plan"])]) == 1
    assert "programs." in capsys.readouterr().err
    for command in (
        with_inputs(inputs, "simulate"),
        ["show", str(inputs["plan"]), "-o", str(inputs["plan"]) + ".svg"],
    ):
        assert run(command) == 2
        assert "programs." in one_error_line(capsys)
    assert not Path(str(inputs["plan"]) + ".svg").exists()


def test_deadlock_is_printed_as_a_cycle(
    inputs: dict[str, Path], plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for program in plan["programs"]:
        receives = [word for word in program if "RECV" in word]
        others = [word for word in program if "RECV" not in word]
        program[:] = receives + others
    inputs["plan"].write_text(json.dumps(plan))
    capsys.readouterr()
    assert run(["check", str(inputs["plan"])]) == 1
    assert "deadlock: these wait for each other" in capsys.readouterr().err


def test_a_plan_of_another_model_is_refused(
    inputs: dict[str, Path], plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    save(inputs["model"], uniform_model(6, state_bytes=11.0))
    capsys.readouterr()
    for command in ("check", "simulate"):
        assert run(with_inputs(inputs, command)) == 2
        line = one_error_line(capsys)
        assert "model.sha256" in line
        assert str(inputs["plan"]) in line


def test_an_unknown_hash_is_a_warning(
    inputs: dict[str, Path], plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    plan["model"]["sha256"] = ""
    inputs["plan"].write_text(json.dumps(plan))
    capsys.readouterr()
    assert run(with_inputs(inputs, "check")) == 0
    assert "warning" in one_error_line(capsys)


def test_a_plan_for_another_world_size_is_refused(
    inputs: dict[str, Path], plan: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    plan["cluster"]["sha256"] = ""
    inputs["plan"].write_text(json.dumps(plan))
    save(inputs["cluster"], make_cluster(4))
    capsys.readouterr()
    assert run(with_inputs(inputs, "check")) == 2
    assert "3 ranks" in capsys.readouterr().err


def test_memory_that_nothing_meets_is_exit_code_1(
    inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(compile_arguments(inputs, "--memory-limit", "15")) == 1
    line = one_error_line(capsys)
    assert "rank" in line
    assert "bytes" in line
    assert not inputs["plan"].exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda model: model["layers"][2].update(extra=1), "layers.2.extra: unknown field"),
        (
            lambda model: model["layers"][1]["cost"]["*"].update(forward_s=-1),
            "forward_s: must be at least 0, not -1",
        ),
        (lambda model: model["layers"][0].pop("state_bytes"), "layers.0.state_bytes: missing"),
        (lambda model: model.update(layers=[]), "layers"),
        (lambda model: model.update(format="octoplan.model/2"), "'octoplan.model/2' is not supported"),
        (lambda model: model["layers"][1].update(name="l0"), "'l0' occurs twice"),
        (lambda model: model["layers"][0]["cost"].update({"*": None}), "layers.0.cost"),
        (
            lambda model: model["layers"][3].update(cost={"tpu": model["layers"][3]["cost"]["*"]}),
            "device type 'gpu'",
        ),
    ],
)
def test_bad_models(
    change: Any, expected: str, inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(inputs["model"].read_text())
    change(document)
    inputs["model"].write_text(json.dumps(document))
    assert run(compile_arguments(inputs)) == 2
    assert expected in one_error_line(capsys)
    assert sorted(path.name for path in inputs["model"].parent.iterdir()) == ["cluster.json", "model.json"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not valid JSON"),
        ('{"format": NaN}', "NaN is not allowed"),
        ("[]", "expected"),
        ("", "not valid JSON"),
    ],
)
def test_files_that_are_no_documents(
    text: str, expected: str, inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model", "cluster"):
        before = inputs[name].read_text()
        inputs[name].write_text(text)
        assert run(compile_arguments(inputs)) == 2
        line = one_error_line(capsys)
        assert expected in line
        assert str(inputs[name]) in line
        inputs[name].write_text(before)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["compile", "--model", "absent.json"], "Missing option"),
        (["frobnicate"], "No such command"),
        (["check", "absent.json"], "absent.json: no such file"),
        (["show", "plan.json", "-o", "picture.gif"], "picture.gif: cannot draw to"),
        (["simulate", "plan.json", "--bogus"], "No such option"),
    ],
)
def test_usage_errors(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert expected in one_error_line(capsys)


def test_output_in_a_missing_folder_is_refused_before_the_search(
    inputs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs["plan"] = inputs["plan"].parent / "absent" / "plan.json"
    assert run(compile_arguments(inputs)) == 2
    assert "its folder does not exist" in one_error_line(capsys)
