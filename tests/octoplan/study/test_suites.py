"""Suites: what is read, expanded and refused; a suite may come from a stranger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octoplan.study import StudyOptions, load_suite, shipped_suites
from octoplan.study.cells import Cell
from octoplan.study.runner import study_cells
from octoplan_schemas import InputError
from tests.octoplan.study.suites import TINY, make_suite, write_suite

PLAIN = [{"name": "1f1b", "strategy": "1f1b"}]


def cells_of(folder: Path, document: dict[str, Any], **options: Any) -> list[Cell]:
    return study_cells(write_suite(folder, document), StudyOptions(**options))[1]


def listed(models: list[Any], clusters: list[str] | None = None) -> dict[str, Any]:
    instances = [{"models": models, "clusters": clusters or ["h800x4"], "microbatches": [8]}]
    return make_suite(PLAIN, instances=instances)


@pytest.mark.parametrize("name", shipped_suites())
def test_every_shipped_suite_expands(name: str) -> None:
    study, cells, _ = study_cells(name, StudyOptions())
    assert study.name == name
    assert study.description
    assert len({cell.id for cell in cells}) == len(cells)
    assert {cell.method.name for cell in cells} == {method.name for method in study.methods}


def test_the_suites_of_the_documentation_are_there() -> None:
    assert shipped_suites() == sorted(
        [
            "smoke",
            "paper-profiles",
            "tight-memory",
            "heterogeneous-clusters",
            "scaling",
            "optimality",
            "ablation",
        ]
    )
    strategies = {method.strategy for method in load_suite("paper-profiles").methods}
    assert {"octoplan", "1f1b", "1f1b:balanced"} <= strategies
    limits = load_suite("paper-profiles").instances[0].memory_limits
    assert limits == ("1f1b:1.0", "1f1b:1.5", "none")


def test_shipped_data_are_those_of_the_examples() -> None:
    root = Path(__file__).parents[3]
    shipped = sorted((root / "octoplan" / "study" / "data").glob("*/*.json"))
    assert len(shipped) == 20
    for path in shipped:
        assert path.read_text() == (root / "examples" / path.parent.name / path.name).read_text()


def test_a_seed_makes_cells_only_where_it_can_matter(tmp_path: Path) -> None:
    methods = [*PLAIN, {"name": "a", "strategy": "octoplan"}, {"name": "none", "search": []}]
    cells = cells_of(tmp_path, make_suite(methods, seeds=[3, 4], repetitions=2, max_evaluations=[10, 20]))
    counts = {name: sum(cell.method.name == name for cell in cells) for name in ("1f1b", "a", "none")}
    assert counts == {"1f1b": 1, "a": 2 * 2 * 2, "none": 1}


def test_identity_follows_everything_that_the_answer_depends_on(tmp_path: Path) -> None:
    search = {"name": "a", "search": ["order"]}
    base = make_suite([search])
    changes = [
        {"methods": [{**search, "options": {"backward": "fused"}}]},
        {"methods": [{"name": "a", "search": ["partition"]}]},
        {"seeds": [1]},
        {"max_evaluations": [61]},
        {"max_evaluations": [], "time_limits_s": [1]},
        {"version": "2"},
        {"instances": [{"random": TINY, "microbatches": [4], "memory_limits": ["1f1b:1.5"]}]},
        {"instances": [{"random": TINY, "microbatches": [3], "memory_limits": ["none"]}]},
        {
            "instances": [
                {"random": {**TINY, "seeds": [1]}, "microbatches": [3], "memory_limits": ["1f1b:1.5"]}
            ]
        },
    ]
    (cell,) = cells_of(tmp_path, base)
    others = [cells_of(tmp_path, {**base, **change})[0].id for change in changes]
    assert len({cell.id, *others}) == len(changes) + 1
    renamed = {**base, "name": "other", "description": "other", "references": ["a"], "cell": {"time_s": 5}}
    assert [same.id for same in cells_of(tmp_path, renamed)] == [cell.id]


def test_paths_are_relative_to_the_suite(tmp_path: Path) -> None:
    examples = Path(__file__).parents[3] / "examples"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.json").write_text((examples / "configs" / "llama3-8B.json").read_text())
    (tmp_path / "cluster.json").write_text((examples / "clusters" / "h800x4.json").read_text())
    (cell,) = cells_of(tmp_path, listed(["mine/model.json"], ["cluster.json"]))
    assert cell.instance.name == "model cluster m=8 95%"
    assert cell.instance.model.source == "roofline"


@pytest.mark.parametrize("path", ["../secret.json", "/etc/hostname", "link.json", "a\0b", "x" * 5000, "."])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret.json").write_text(json.dumps({"format": "octoplan.model/1", "name": "hidden"}))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(InputError) as caught:
        cells_of(inside, listed([path]))
    assert "hidden" not in str(caught.value)
    with pytest.raises(InputError):
        cells_of(inside, listed(["llama3-8B"], [path]))


def test_root_gives_another_folder(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "configs" / "llama3-8B.json"
    (tmp_path / "inside").mkdir()
    (tmp_path / "model.json").write_text(example.read_text())
    (cell,) = cells_of(tmp_path / "inside", listed(["model.json"]), root=tmp_path)
    assert cell.instance.model_name == "model"


@pytest.mark.parametrize(
    "text",
    [
        "name: !!python/object/apply:os.system ['touch OUT']",
        "name: !!python/name:os.system ''",
        "a: &x [1]\nb: *x",
        "name: tiny\nname: tiny",
        "? [1, 2]\n: 3",
        "name: 2020-01-01",
        "- 1",
        "name: [",
    ],
)
def test_yaml_can_only_say_values(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "suite.yaml"
    body = "" if text.startswith(("- ", "name: [")) else "format: octoplan.study/1\n"
    path.write_text(body + text)
    with pytest.raises(InputError):
        load_suite(path)
    assert not (tmp_path / "OUT").exists()


def test_yaml_reads_numbers_with_an_exponent(tmp_path: Path) -> None:
    document = make_suite(PLAIN)
    path = tmp_path / "suite.yaml"
    path.write_text(json.dumps(document)[:-1] + ', "cell": {"memory_bytes": 4e9}}')
    assert load_suite(path).cell.memory_bytes == 4e9


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"methods": [{"name": "a"}]}, "exactly one"),
        ({"methods": [{"name": "a", "strategy": "1f1b", "solver": "dp"}]}, "exactly one"),
        ({"methods": [*PLAIN, *PLAIN]}, "occurs twice"),
        ({"methods": [{"name": "a", "strategy": "2f2b"}]}, "2f2b"),
        ({"methods": [{"name": "a", "solver": "nobody"}]}, "--plugin"),
        ({"methods": [{"name": "a", "search": ["order", "order"]}]}, "twice"),
        ({"methods": [{"name": "a", "strategy": "octoplan", "options": {"sead": 1}}]}, "options.sead"),
        ({"methods": [{"name": "a", "strategy": "octoplan", "options": {"on_progress": 1}}]}, "on_progress"),
        (
            {"methods": [{"name": "a", "strategy": "octoplan", "options": {"backward": 1}}]},
            "options.backward",
        ),
        ({"methods": [{"name": "a", "strategy": "octoplan", "options": {"backward": "both"}}]}, "backward"),
        ({"methods": [{"name": "a", "strategy": "octoplan", "options": {"memory_limit": "x"}}]}, "memory"),
        ({"methods": [{"name": "a", "strategy": "octoplan", "options": {"constraints": [{"p": 1}]}}]}, "p"),
        ({"methods": [{"name": "=1+1", "strategy": "1f1b"}]}, "name"),
        ({"references": ["b"]}, "references"),
        ({"time_limits_s": [1]}, "not both"),
        ({"seeds": []}, "seeds"),
        ({"repetitions": 0}, "repetitions"),
        ({"instances": []}, "instances"),
        ({"instances": [{"microbatches": [1]}]}, "models and clusters"),
        ({"instances": [{"models": ["llama3-8B"], "clusters": ["h800x4"]}]}, "microbatches"),
        ({"instances": [{"random": TINY, "microbatches": [2], "memory_limits": ["huge"]}]}, "huge"),
        ({"instances": [{"random": TINY, "microbatches": [2]}] * 2}, "occurs twice"),
        (
            {"instances": [{"random": {**TINY, "seeds": [0] * 9, "layers": [10**6]}, "microbatches": [2]}]},
            "layers",
        ),
        ({"instances": [{"random": {**TINY, "slow_share": [1.5]}, "microbatches": [2]}]}, "slow_share"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_bad_suites_are_refused_by_field(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        cells_of(tmp_path, {**make_suite(PLAIN), **change})


def test_a_suite_cannot_ask_for_too_much(tmp_path: Path) -> None:
    many = {"seeds": list(range(1000)), "layers": list(range(4, 54)), "ranks": [2]}
    instances = [{"random": many, "microbatches": [2]}]
    with pytest.raises(InputError, match="shorten"):
        cells_of(tmp_path, make_suite(PLAIN, instances=instances))
