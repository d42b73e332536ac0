"""The bound from counting layers by kind: never above the true optimum, and sharp on a published model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import octoplan
from octoplan.problem_builder import build_problem
from octoplan_solvers.bounds import lower_bounds
from octoplan_solvers.kind_bound import LayerKinds, applies, kind_bound
from tests import exhaustive
from tests.builders import make_cluster, make_layer, make_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("seed", range(24))
def test_never_above_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = random.integers(1, 5, size=(2, 3)).tolist()
    num_layers, num_ranks = int(random.integers(3, 6)), int(random.integers(2, 4))
    chosen = random.integers(0, 2, size=num_layers).tolist()
    model = make_model([make_layer(f"l{index}", *kinds[kind]) for index, kind in enumerate(chosen)])
    cluster = make_cluster(
        num_ranks, latency_s=float(random.choice([0.0, 0.5])), op_overhead_s=float(random.choice([0.0, 0.25]))
    )
    num_microbatches, backward = int(random.integers(1, 3)), str(random.choice(["split", "fused"]))
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


def test_does_not_apply_where_every_layer_differs_or_devices_do() -> None:
    many = [make_layer(f"l{index}", 1.0 + index) for index in range(30)]
    assert not applies(build_problem(make_model(many), make_cluster(2), num_microbatches=2))
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / "h800x4-a100x4.json")
    model = octoplan.import_model(
        EXAMPLES / "configs" / "llama3-8B.json", octoplan.ImportOptions(cluster=cluster)
    )
    assert not applies(build_problem(model, cluster, num_microbatches=2))
