"""Models and plans that the export tests share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import octoplan
from octoplan_schemas import Cluster, ModelGraph, Plan
from tests.builders import make_cluster, make_layer, make_model

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PROFILES = ("llama3-8B", "nemotron-h-4B", "jamba-52B")
TARGETS = ("torch", "torchtitan", "megatron")


def block_model(num_blocks: int, kinds: tuple[str, ...] = ("transformer",), seed: int = 0) -> ModelGraph:
    """Return an embedding, blocks of the given kinds in turn, and a head, with random times and sizes."""
    random = np.random.default_rng(seed)
    names = ["embedding", *(f"layers.{index}" for index in range(num_blocks)), "lm_head"]
    body = [kinds[index % len(kinds)] for index in range(num_blocks)]
    layers = [
        make_layer(
            name,
            *random.uniform(0.5, 2.0, size=3).tolist(),
            kind=kind,
            state_bytes=float(random.integers(1, 9)),
            activation_bytes=float(random.integers(1, 9)),
            output_bytes=2.0,
        )
        for name, kind in zip(names, ["embedding", *body, "lm_head"], strict=True)
    ]
    return make_model(layers)


def pair(num_ranks: int) -> Cluster:
    """Return equal devices whose links take time."""
    return make_cluster(num_ranks, latency_s=0.3, bandwidth=10.0, op_overhead_s=0.05)


def compiled(model: ModelGraph, cluster: Cluster, microbatches: int = 8, **options: object) -> Plan:
    """Compile quickly and reproducibly."""
    chosen: dict[str, object] = {"memory_limit": "none", "max_evaluations": 60, "solver": "dp", **options}
    return octoplan.compile_plan(model, cluster, octoplan.CompileOptions(microbatches, **chosen))  # type: ignore[arg-type]


@cache
def profile_plan(name: str, target: str) -> tuple[Plan, ModelGraph, Cluster]:
    """Compile one of the public profiles for a target."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / "h800x4.json")
    model = octoplan.import_model(
        EXAMPLES / "profiles" / f"{name}.json",
        octoplan.ImportOptions(cluster=cluster, config=EXAMPLES / "configs" / f"{name}.json"),
    )
    return compiled(model, cluster, target=target), model, cluster
