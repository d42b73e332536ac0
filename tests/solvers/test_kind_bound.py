"""The bound from counting layers by kind: never above the true optimum, and sharp on a published model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import octoplan
from octoplan.problem_builder import build_problem
from octoplan_schemas import Cluster, Layer, OpCost
from octoplan_solvers.bounds import lower_bounds
from octoplan_solvers.kind_bound import LayerKinds, applies, kind_bound
from tests import exhaustive
from tests.builders import make_cluster, make_layer, make_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _two_types(num_ranks: int, num_slow: int, **links: float) -> Cluster:
    """Return a cluster whose last devices are of another type, and nodes that do not matter."""
    cluster = make_cluster(num_ranks, **links)
    devices = tuple(
        device.model_copy(update={"type": "slow"}) if rank >= num_ranks - num_slow else device
        for rank, device in enumerate(cluster.devices)
    )
    types = {**cluster.device_types, "slow": cluster.device_types["gpu"]}
    return cluster.model_copy(
        update={"devices": devices, "device_types": types if num_slow else cluster.device_types}
    )


@pytest.mark.parametrize("num_slow", [0, 1])
@pytest.mark.parametrize("seed", range(24))
def test_never_above_the_optimum(seed: int, num_slow: int) -> None:
    random = np.random.default_rng(seed)
    kinds = random.integers(1, 5, size=(2, 3)).tolist()
    slower = random.integers(1, 4, size=2).tolist()
    num_layers, num_ranks = int(random.integers(3, 6)), int(random.integers(2, 4))
    chosen = random.integers(0, 2, size=num_layers).tolist()
    layers = [make_layer(f"l{index}", *kinds[kind]) for index, kind in enumerate(chosen)]
    model = make_model(
        [_with_slow_cost(layer, slower[kind]) for layer, kind in zip(layers, chosen, strict=True)]
    )
    cluster = _two_types(
        num_ranks,
        num_slow,
        latency_s=float(random.choice([0.0, 0.5])),
        op_overhead_s=float(random.choice([0.0, 0.25])),
    )
    num_microbatches = int(random.integers(1, 3))
    backward: Literal["split", "fused"] = "split" if random.random() < 0.5 else "fused"
    problem = build_problem(
        model,
        cluster,
        num_microbatches=num_microbatches,
        split_backward=backward == "split",
        max_stages_per_rank=2,
    )
    optimum = exhaustive.optimum(
        model,
        cluster,
        num_microbatches=num_microbatches,
        backward=backward,
        max_stages_per_device=2,
        memory_limit_bytes=None,
    )
    assert optimum is not None
    assert applies(problem)
    assert 0 < kind_bound(problem, time_limit_s=20, num_workers=1) <= optimum * (1 + 1e-9)


def _with_slow_cost(layer: Layer, times: int) -> Layer:
    """Return the layer with costs so many times larger on the slow type."""
    cost = layer.cost["*"]
    slow = OpCost(
        forward_s=times * cost.forward_s,
        backward_input_s=cost.backward_input_s,
        backward_weight_s=times * cost.backward_weight_s,
    )
    return layer.model_copy(update={"cost": {"*": cost, "slow": slow}})


def test_proves_what_is_known_of_llama3_8b() -> None:
    """749.3 ms is optimal for 4 ranks, 16 microbatches and free transfers; work per rank is 706.9 ms."""
    model = octoplan.import_model(EXAMPLES / "profiles" / "llama3-8B.json")
    problem = build_problem(
        model, make_cluster(4, bandwidth=1e30), num_microbatches=16, max_stages_per_rank=4
    )
    bound = kind_bound(problem, time_limit_s=60)
    assert bound == pytest.approx(0.74934, abs=2e-5)
    assert bound > 1.05 * lower_bounds(problem)[0].seconds


def test_kinds_are_layers_of_equal_times() -> None:
    layers = [make_layer(f"l{index}", 1.0 + index % 2, 2.0, 3.0) for index in range(5)]
    problem = build_problem(make_model(layers), make_cluster(2), num_microbatches=2)
    kinds = LayerKinds.of(problem)
    assert sorted(kinds.count.tolist()) == [2, 3]
    assert kinds.of_layer[0] == kinds.of_layer[2] == kinds.of_layer[4] != kinds.of_layer[1]


def test_does_not_apply_where_every_layer_differs() -> None:
    many = [make_layer(f"l{index}", 1.0 + index) for index in range(30)]
    assert not applies(build_problem(make_model(many), make_cluster(2), num_microbatches=2))


def test_unequal_devices_get_whole_layers() -> None:
    """gemma2-27B, 4 fast and 4 slow devices: whole layers cost 3.7% more than the shares of a linear program."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / "h800x4-a100x4.json")
    options = octoplan.ImportOptions(cluster=cluster, sequence_length=4096)
    model = octoplan.import_model(EXAMPLES / "configs" / "gemma2-27B.json", options)
    problem = build_problem(model, cluster, num_microbatches=32)
    assert kind_bound(problem, time_limit_s=60) > 1.03 * lower_bounds(problem)[0].seconds
