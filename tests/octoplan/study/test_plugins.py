"""Solvers of the user's own: the documentation's example runs as it stands, and mistakes are told."""

from __future__ import annotations

import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random

import pytest

import octoplan_solvers.registry as registry
from octoplan.cli import app
from octoplan.problem_builder import build_problem
from octoplan.study import load_results
from octoplan.study.plugins import read_plugins
from octoplan.study.store import read_suite
from octoplan.yaml_file import parse_yaml
from octoplan_schemas import InputError
from octoplan_solvers.placement_check import check_assignment
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.registry import Solver, SolverInfo, get_solver, list_solvers, solve_assignment
from tests.octoplan.study.suites import make_suite, parse
from tests.random_problems import random_job

PAGE = (Path(__file__).parents[3] / "docs" / "studies.md").read_text()


def example() -> str:
    """Return the complete solver of the documentation."""
    (text,) = [
        text for text in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "SOLVER = " in text
    ]
    return text


def random_problem(seed: int) -> PipelineProblem:
    job = random_job(Random(seed))
    return build_problem(job.model, job.cluster, num_microbatches=job.num_microbatches, max_stages_per_rank=3)


def documented_methods() -> list[dict[str, object]]:
    blocks = [parse_yaml(text, "page") for text in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)]
    (methods,) = [block["methods"] for block in blocks if set(block) == {"methods"}]
    return methods


def test_the_documented_solver_takes_part_in_a_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_solver.py").write_text(example())
    methods = [{"name": "1f1b", "strategy": "1f1b"}, *documented_methods()]
    Path("my-suite.yaml").write_text(json.dumps(make_suite(methods, references=["1f1b"])))
    (command,) = re.findall(r"`octoplan (study my-suite.yaml .*--plugin my_solver.py)`", PAGE)
    assert app.run(command.split()) == 0
    assert "3 ok" in capsys.readouterr().out
    frame = load_results("out/mine").set_index("method")
    assert frame.status.tolist() == ["ok"] * 3
    assert frame.makespan_s["octoplan from greedy"] <= frame.makespan_s["greedy"]
    page = Path("out/mine/report.html").read_text()
    assert '<th scope="row">greedy</th>' in page
    assert "octoplan from greedy" in page


def test_the_documented_solver_keeps_the_protocol(tmp_path: Path) -> None:
    path = tmp_path / "my_solver.py"
    path.write_text(example())
    read_plugins([path])
    for seed in range(30):
        problem = random_problem(seed)
        result = solve_assignment(problem, solver="greedy-cuts", time_limit_s=1.0)
        assert result.assignment is not None
        assert check_assignment(problem, result.assignment) == []


def test_the_documented_suite_is_one() -> None:
    blocks = [parse_yaml(text, "page") for text in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)]
    (document,) = [block for block in blocks if "format" in block]
    assert parse(document).name == "my-suite"


def test_every_column_is_documented(finished: Path) -> None:
    columns = set(load_results(finished).columns)
    dials = {
        "body_layers",
        "ranks",
        "head_weight",
        "slow_share",
        "slow_factor",
        "transfer_share",
        "tightness",
    }
    missing = {name for name in columns - dials if f"`{name}`" not in PAGE}
    assert missing == set()
    assert read_suite(finished).name == "broad"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "defines no solver"),
        ("SOLVER = 1", "defines no solver"),
        ("SOLVERS = []", "defines no solver"),
        ("1 / 0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        (
            "from octoplan_solvers.registry import *\nSOLVER = Solver(SolverInfo('dp', True, '1'), print)",
            "choose another",
        ),
    ],
)
def test_a_bad_plugin_is_one_clear_error(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        read_plugins([path])
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match=told):
        read_plugins([path])  # it is not half registered


def test_entry_points_are_found_and_broken_ones_told(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("mine", f"{__name__}:GOOD", registry.ENTRY_POINTS),
        EntryPoint("broken", "nothing_of_this_name:X", registry.ENTRY_POINTS),
        EntryPoint("odd", "math:pi", registry.ENTRY_POINTS),
    ]
    monkeypatch.setattr(EntryPoint, "load", lambda point: LOADED[point.name]())
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "octoplan.solvers" else [])
    registry._installed.cache_clear()
    try:
        infos = {info.name: info for info in list_solvers()}
        assert get_solver("mine") is GOOD.solve
        assert infos["mine"].available
        assert not infos["broken"].available
        assert not infos["odd"].available
        with pytest.raises(ValueError, match="cannot be loaded"):
            solve_assignment(random_problem(0), solver="broken", time_limit_s=1.0)
    finally:
        registry._installed.cache_clear()


GOOD = Solver(SolverInfo("mine", True, "1"), get_solver("dp"))


def missing() -> None:
    raise ModuleNotFoundError("nothing_of_this_name")


LOADED = {"mine": lambda: GOOD, "broken": missing, "odd": lambda: 3.14}
