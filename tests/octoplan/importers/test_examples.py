"""Every config and table of the examples, in every granularity and sharding."""

from __future__ import annotations

from pathlib import Path

import pytest

from octoplan.cost_model import DEVICES, parameter_count
from octoplan.importers import ImportOptions, import_model
from octoplan.importers.config_source import config_architecture
from octoplan_schemas import Cluster, ModelGraph, load, save
from octoplan_schemas.files import read_json

EXAMPLES = Path(__file__).parents[3] / "examples"
CONFIGS = sorted((EXAMPLES / "configs").glob("*.json"))
PROFILES = sorted((EXAMPLES / "profiles").glob("*.json"))
VARIANTS = {
    "block": ImportOptions(),
    "sublayer": ImportOptions(granularity="sublayer"),
    "sharded": ImportOptions(tensor_parallel=8, data_parallel=4, granularity="sublayer"),
}

#: Billions of parameters, as the names (or the makers) say.
BILLIONS = {
    "deepseek-v3": 682.6,
    "gemma2-27B": 27.2,
    "gemma3-27B": 27.0,
    "jamba-100B": 100,
    "jamba-52B": 52,
    "llama2-70B": 69,
    "llama3-70B": 70.6,
    "llama3-8B": 8.03,
    "nemotron-h-4B": 4.5,
    "nemotron-h-56B": 56,
    "nemotron-h-8B": 8.1,
    "nemotron-nano-v2-9B": 8.9,
    "qwen3-235B-A22B": 235,
}


def by_name(path: Path) -> str:
    return path.stem


def check_shape(graph: ModelGraph) -> None:
    assert graph.layers[0].kind == "embedding"
    assert graph.layers[-1].kind == "lm_head"
    assert graph.layers[-1].output_bytes == 0
    tokens = (graph.sequence_length or 0) * (graph.micro_batch_size or 0)
    for layer in graph.layers[:-1]:
        assert layer.output_bytes % (2 * tokens) == 0
        assert layer.output_bytes > 0
    for layer in graph.layers:
        assert (
            min(layer.state_bytes, layer.activation_bytes, layer.weight_stash_bytes, layer.workspace_bytes)
            > 0
        )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", CONFIGS, ids=by_name)
def test_configs(path: Path, variant: str, tmp_path: Path) -> None:
    graph = import_model(path, VARIANTS[variant])
    check_shape(graph)
    assert (graph.name, graph.source, graph.sequence_length) == (path.stem, "roofline", 4096)
    for layer in graph.layers:
        assert set(layer.cost) == set(DEVICES)
        assert all(cost.forward_s > 0 for cost in layer.cost.values())
    save(tmp_path / "model.json", graph)
    assert import_model(tmp_path / "model.json") == graph
    assert import_model(tmp_path / "model.json").sha256() == graph.sha256()


@pytest.mark.parametrize("path", CONFIGS, ids=by_name)
def test_totals(path: Path) -> None:
    billions = parameter_count(config_architecture(read_json(path), path)) / 1e9
    assert billions == pytest.approx(BILLIONS[path.stem], rel=0.01)


@pytest.mark.parametrize("path", CONFIGS, ids=by_name)
def test_state_is_eighteen_bytes_a_parameter(path: Path) -> None:
    architecture = config_architecture(read_json(path), path)
    parameters = parameter_count(architecture) + architecture.tied_parameters
    assert sum(layer.state_bytes for layer in import_model(path).layers) == 18 * parameters


@pytest.mark.parametrize("path", CONFIGS, ids=by_name)
def test_cutting_blocks_changes_no_sum(path: Path) -> None:
    blocks, parts = (import_model(path, VARIANTS[name]).layers for name in ("block", "sublayer"))
    for field in ("state_bytes", "activation_bytes", "weight_stash_bytes"):
        assert sum(getattr(layer, field) for layer in blocks) == sum(getattr(layer, field) for layer in parts)
    for field in ("forward_s", "backward_input_s", "backward_weight_s"):
        whole, cut = (
            sum(getattr(layer.cost["h800"], field) for layer in layers) for layers in (blocks, parts)
        )
        assert whole == pytest.approx(cut, rel=1e-12)


@pytest.mark.parametrize("path", CONFIGS, ids=by_name)
def test_sharding_shrinks_every_layer(path: Path) -> None:
    whole, shared = import_model(path), import_model(path, ImportOptions(tensor_parallel=8))
    for one, part in zip(whole.layers, shared.layers, strict=True):
        assert part.state_bytes < one.state_bytes
        assert part.activation_bytes <= one.activation_bytes
        assert part.output_bytes == one.output_bytes


def test_costs_follow_the_cluster_and_the_efficiency() -> None:
    cluster = load(EXAMPLES / "clusters" / "h800x4-a100x4.json", Cluster)
    path = EXAMPLES / "configs" / "llama3-8B.json"
    graph = import_model(path, ImportOptions(cluster=cluster))
    half = import_model(path, ImportOptions(cluster=cluster, efficiency=0.3))
    block, slower = graph.layers[1].cost, half.layers[1].cost
    assert set(block) == {"h800", "a100"}
    assert block["a100"].forward_s > 2 * block["h800"].forward_s
    # 0.3 instead of the default 0.6 doubles the products, and leaves what memory bounds.
    assert 1.8 < slower["h800"].forward_s / block["h800"].forward_s < 2.0
    # The weights work 2 flops a token and parameter, causal scores 2 (s + 1) d h: all at 0.6 of the peak.
    flops = 2 * 4096 * (218_112_000 - 8192) + 2 * 4096 * 4097 * 4096
    assert block["h800"].forward_s > flops / (0.6 * 989e12)
    assert block["h800"].forward_s < 1.2 * flops / (0.6 * 989e12)


def test_reductions_of_a_sharded_layer_take_the_link() -> None:
    path, cluster = (
        EXAMPLES / "configs" / "llama3-8B.json",
        load(EXAMPLES / "clusters" / "h800x4.json", Cluster),
    )
    with_link = import_model(path, ImportOptions(tensor_parallel=4, cluster=cluster)).layers[1].cost["h800"]
    without = import_model(path, ImportOptions(tensor_parallel=4)).layers[1].cost["h800"]
    # Two all-reduces of tokens x hidden each way: six steps of a quarter.
    ring_s = 2 * 6 * (5e-6 + 4096 * 4096 * 2 / 4 / 200e9)
    assert with_link.forward_s - without.forward_s == pytest.approx(ring_s, rel=1e-9)
    assert with_link.backward_input_s - without.backward_input_s == pytest.approx(ring_s, rel=1e-9)
    assert with_link.backward_weight_s == without.backward_weight_s


@pytest.mark.parametrize("path", PROFILES, ids=by_name)
def test_tables_alone(path: Path) -> None:
    graph, table = import_model(path), read_json(path)
    assert (graph.name, graph.source) == (table["name"], "table")
    assert len(graph.layers) == len(table["pattern"])
    for symbol, layer in zip(table["pattern"], graph.layers, strict=True):
        assert set(layer.cost) == {"*"}
        assert layer.cost["*"].forward_s * 1000 == pytest.approx(table["forward_ms"][symbol], rel=1e-12)
        assert layer.cost["*"].backward_input_s * 1000 == pytest.approx(
            table["backward_ms"][symbol], rel=1e-12
        )
        assert layer.cost["*"].backward_weight_s * 1000 == pytest.approx(
            table["weight_ms"][symbol], rel=1e-12
        )
        assert layer.state_bytes == layer.activation_bytes == layer.output_bytes == 0


@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("path", PROFILES, ids=by_name)
def test_tables_with_config(path: Path, tensor_parallel: int) -> None:
    config = EXAMPLES / "configs" / path.name
    graph = import_model(path, ImportOptions(config=config, tensor_parallel=tensor_parallel))
    alone = import_model(path)
    bytes_from = import_model(
        config,
        ImportOptions(
            tensor_parallel=tensor_parallel, granularity="block" if "llama" in path.stem else "sublayer"
        ),
    )
    check_shape(graph)
    assert graph.name == alone.name
    for layer, timed, sized in zip(graph.layers, alone.layers, bytes_from.layers, strict=True):
        assert (layer.name, layer.kind, layer.cost) == (timed.name, timed.kind, timed.cost)
        assert layer.model_copy(update={"cost": sized.cost}) == sized


def test_a_released_result_adds_up() -> None:
    graph = import_model(EXAMPLES / "profiles" / "nemotron-nano-v2-9B.json")
    total_s = sum(
        layer.cost["*"].forward_s + layer.cost["*"].backward_input_s + layer.cost["*"].backward_weight_s
        for layer in graph.layers
    )
    # Eight microbatches on four ranks keep each rank busy for 851.3 ms on average.
    assert total_s * 8 / 4 == pytest.approx(0.8513, abs=5e-5)


def test_a_cluster_is_welcome_where_costs_are_given_already(tmp_path: Path) -> None:
    options = ImportOptions(cluster=load(EXAMPLES / "clusters" / "h800x4.json", Cluster))
    table = EXAMPLES / "profiles" / "jamba-52B.json"
    graph = import_model(table, options)
    assert graph == import_model(table)
    save(tmp_path / "model.json", graph)
    assert import_model(tmp_path / "model.json", options) == graph
