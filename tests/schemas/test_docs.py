"""The examples in `docs/file-formats.md` are what the page says they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from octoplan_schemas import Cluster, Job, ModelGraph, Plan, check_plan
from octoplan_schemas.base import Document
from tests.reference_simulator import simulate

PAGE = (Path(__file__).parents[2] / "docs" / "file-formats.md").read_text()


def example(kind: type[Document]) -> Document:
    blocks = re.findall(r"```(json|yaml)\n(.*?)```", PAGE, flags=re.DOTALL)
    parsed = [json.loads(text) if language == "json" else yaml.safe_load(text) for language, text in blocks]
    (document,) = [value for value in parsed if value["format"] == kind.FORMAT]
    return kind.from_document(document)


@pytest.mark.parametrize("kind", [ModelGraph, Cluster, Plan, Job])
def test_example_is_valid(kind: type[Document]) -> None:
    assert example(kind).format == kind.FORMAT


def test_plan_of_the_page_is_sound_and_fits_its_inputs() -> None:
    plan, model, cluster = example(Plan), example(ModelGraph), example(Cluster)
    assert isinstance(plan, Plan)
    assert check_plan(plan) == []
    assert plan.model.sha256 == model.sha256()
    assert plan.cluster.sha256 == cluster.sha256()
    assert isinstance(model, ModelGraph)
    assert isinstance(cluster, Cluster)
    result = simulate(plan, model, cluster)
    predicted = plan.predicted
    assert predicted.makespan_s == pytest.approx(result.makespan_s, rel=1e-9)
    assert [rank.busy_s for rank in predicted.ranks] == pytest.approx(result.busy_s)
    assert [rank.peak_bytes for rank in predicted.ranks] == result.peak_bytes
    assert predicted.bubble_fraction == pytest.approx(
        1 - sum(result.busy_s) / 2 / result.makespan_s, abs=1e-6
    )


def test_recipe_for_hashes_gives_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (recipe,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    model = example(ModelGraph)
    (tmp_path / "model.json").write_text(json.dumps(model.to_document(), indent=3))
    monkeypatch.chdir(tmp_path)
    exec(recipe, {})
    assert capsys.readouterr().out.strip() == model.sha256()
