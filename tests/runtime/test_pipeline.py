"""Plans on real processes give the gradients of a single process."""

from __future__ import annotations

import functools
import json
import multiprocessing
from pathlib import Path

import pytest

import octoplan
from octoplan_runtime.launch import launch_local
from octoplan_schemas import Cluster, ModelGraph, save
from tests.runtime import pipeline_cases


def complaints_of(directory: Path, num_ranks: int) -> list[str]:
    lines = []
    for rank in range(num_ranks):
        for case, found in json.loads((directory / f"{rank}.json").read_text(encoding="utf-8")).items():
            lines += [f"rank {rank}, {case}: {line}" for line in found]
    return lines


@pytest.mark.timeout(200)
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("cases", [pipeline_cases.named_cases, pipeline_cases.random_cases])
def test_gradients_losses_and_evaluation_equal_the_single_process(cases, num_ranks, tmp_path):
    run = launch_local(pipeline_cases.check_cases, num_ranks, (cases, str(tmp_path)))
    assert run.exit_codes == [0] * num_ranks
    assert complaints_of(tmp_path, num_ranks) == []
    assert multiprocessing.active_children() == []


STRATEGIES = (
    "gpipe",
    "1f1b:balanced",
    "interleaved-1f1b",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
    "octoplan",
)


def compiled_model(num_layers: int) -> ModelGraph:
    """Layers of unequal cost, the last one heavy, with outputs that take time to send."""
    sizes = {"state_bytes": 1, "activation_bytes": 1000, "weight_stash_bytes": 0, "workspace_bytes": 0}
    cost = [1.0 + 0.5 * (index % 3) + 3.0 * (index == num_layers - 1) for index in range(num_layers)]
    rows = [
        {
            "name": f"layer{index}",
            "kind": "mlp",
            "cost": {"*": {"forward_s": s, "backward_input_s": s, "backward_weight_s": s / 2}},
            **sizes,
            "output_bytes": 100,
        }
        for index, s in enumerate(cost)
    ]
    return ModelGraph.from_document({"format": ModelGraph.FORMAT, "name": "unequal", "layers": rows})


def four_devices() -> Cluster:
    link = {"latency_s": 0.01, "bandwidth": 1000.0}
    kind = {"memory_bytes": 1e9, "peak_flops": 1.0, "memory_bandwidth": 1.0, "op_overhead_s": 0.0}
    devices = [{"name": f"d{rank}", "type": "d", "node": "n"} for rank in range(4)]
    links = {"intra_node": link, "inter_node": link}
    document = {"format": Cluster.FORMAT, "name": "four", "device_types": {"d": kind}}
    return Cluster.from_document({**document, "devices": devices, "links": links})


@pytest.mark.timeout(200)
def test_every_strategys_plan_trains_as_a_single_process(tmp_path):
    model, cluster = compiled_model(11), four_devices()
    for strategy in STRATEGIES:
        options = octoplan.CompileOptions(8, strategy, max_evaluations=60, memory_limit="none")
        plan = octoplan.compile_plan(model, cluster, options)
        save(tmp_path / f"{strategy.replace(':', '-')}.plan.json", plan)
    cases = functools.partial(pipeline_cases.compiled_cases, str(tmp_path))
    run = launch_local(pipeline_cases.check_cases, 4, (cases, str(tmp_path)))
    assert run.exit_codes == [0] * 4
    assert complaints_of(tmp_path, 4) == []
    checked = json.loads((tmp_path / "0.json").read_text(encoding="utf-8"))
    assert len(checked) == len(STRATEGIES)


@pytest.mark.timeout(100)
def test_two_pipelines_side_by_side_in_groups_of_their_own(tmp_path):
    run = launch_local(pipeline_cases.other_data_parallel_half, 4, (str(tmp_path),))
    assert run.exit_codes == [0] * 4
    assert complaints_of(tmp_path, 4) == []
