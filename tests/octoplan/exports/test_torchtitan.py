"""``torchtitan``: torch lowers the schedule to the same computations; the settings rebuild the plan's stages."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import octoplan
from octoplan_schemas import ModelGraph, Plan
from tests.builders import make_layer, make_model
from tests.octoplan.exports import torch_loader
from tests.octoplan.exports.samples import block_model, compiled, pair


def exported(plan: Plan, model: ModelGraph, folder: Path) -> tuple[Path, dict[str, Any]]:
    csv, settings = octoplan.export_plan(plan, "torchtitan", folder / "plan.csv", model=model).files
    document = tomllib.loads(settings.read_text())
    assert list(document) == ["parallelism"]
    return csv, document["parallelism"]


def stage_indices(rank: int, num_ranks: int, num_stages: int, schedule: str) -> list[int]:
    """Torchtitan's rule: a V for the two V-shaped schedules, else a loop."""
    if schedule in ("ZBVZeroBubble", "DualPipeV"):
        assert num_stages == 2 * num_ranks
        return [rank, num_stages - 1 - rank]
    assert num_stages % num_ranks == 0
    return list(range(rank, num_stages, num_ranks))


@pytest.mark.parametrize(
    "options",
    [
        {"target": "torchtitan"},
        {"target": "torchtitan", "max_stages_per_device": 1},
        {"strategy": "zb-v", "target": "torchtitan"},
        {"strategy": "interleaved-1f1b:v=3"},
    ],
)
def test_torch_and_torchtitan_rebuild_the_plan(options: dict[str, object], tmp_path: Path) -> None:
    model, num_ranks = block_model(10), 3
    plan = compiled(model, pair(num_ranks), **options)
    csv, settings = exported(plan, model, tmp_path)
    schedule = torch_loader.load(plan, csv, "compute_only")
    torch_loader.dry_run(schedule)
    computes = [[word for word in program if "_" not in word] for program in plan.programs]
    lowered = torch_loader.words(schedule)
    assert [[w for w in row if "_" not in w and "SHARD" not in w] for row in lowered] == computes
    parts = settings["pipeline_parallel_module_fqns_per_model_part"]
    assert settings["pipeline_parallel_degree"] == num_ranks
    assert settings["num_pp_microbatches"] == plan.job.microbatches
    assert settings["pipeline_parallel_schedule_csv"] == csv.as_posix()
    for rank in range(num_ranks):
        built = stage_indices(rank, num_ranks, len(parts), settings["pipeline_parallel_schedule"])
        assert built == [stage.id for stage in plan.stages if stage.rank == rank]
    names = ["tok_embeddings", *(f"layers.{index}" for index in range(10)), "norm", "lm_head"]
    assert [name for part in parts for name in part] == names
    sizes = [sum(name != "norm" for name in part) for part in parts]
    assert sizes == [stage.layers[1] - stage.layers[0] for stage in plan.stages]


def sublayer_model() -> ModelGraph:
    names = [
        "embedding",
        *(f"layers.{i}.{part}" for i in range(5) for part in ("attention", "mlp")),
        "lm_head",
    ]
    kinds = ["embedding", *(["attention", "mlp"] * 5), "lm_head"]
    return make_model([make_layer(name, kind=kind) for name, kind in zip(names, kinds, strict=True)])


def test_stages_of_sublayers_are_whole_blocks(tmp_path: Path) -> None:
    model = sublayer_model()
    _, settings = exported(compiled(model, pair(2), target="torchtitan"), model, tmp_path)
    parts = settings["pipeline_parallel_module_fqns_per_model_part"]
    names = ["tok_embeddings", *(f"layers.{i}" for i in range(5)), "norm", "lm_head"]
    assert [name for part in parts for name in part] == names


def test_a_stage_that_ends_inside_a_block_is_refused(tmp_path: Path) -> None:
    model = sublayer_model()
    plan = compiled(model, pair(3), strategy="1f1b:balanced")
    assert any(stage.layers[0] % 2 == 0 for stage in plan.stages[1:])
    with pytest.raises(octoplan.InfeasibleError, match="begins with 'layers"):
        exported(plan, model, tmp_path)


def test_another_placement_is_refused(tmp_path: Path) -> None:
    model = block_model(6)
    document = compiled(model, pair(2), 4, strategy="1f1b").to_document()
    document["stages"] = [{"id": 0, "layers": [0, 4], "rank": 1}, {"id": 1, "layers": [4, 8], "rank": 0}]
    document["programs"] = [
        [word for m in range(4) for word in (f"1RECV_F{m}", f"1F{m}", f"1B{m}", f"1SEND_B{m}")],
        [word for m in range(4) for word in (f"0F{m}", f"0SEND_F{m}", f"0RECV_B{m}", f"0B{m}")],
    ]
    with pytest.raises(octoplan.InfeasibleError, match="stages are on ranks 1, 0"):
        exported(Plan.from_document(document), model, tmp_path)


def test_names_from_strangers_stay_inside_their_strings(tmp_path: Path) -> None:
    model = make_model([make_layer('a"]\n[evil]\nb = ["'), make_layer("b\\"), make_layer("\x7f\u00e9")])
    model = model.model_copy(update={"name": "x\n[evil]\ny"})
    plan = compiled(model, pair(3), strategy="1f1b")
    _, settings = exported(plan, model, tmp_path)
    parts = settings["pipeline_parallel_module_fqns_per_model_part"]
    assert [part[0] for part in parts] == [layer.name for layer in model.layers]
