"""Random problems small enough for `tests.exhaustive`, reproducible from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from octoplan.problem_builder import build_problem
from octoplan_schemas import Cluster, ModelGraph
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import PipelineProblem
from tests.exhaustive import Optimum, find_optimum
from tests.random_problems import random_cluster, random_model


@dataclass(frozen=True)
class TinyProblem:
    """Model, cluster and job; the memory limit of every rank is its device's memory."""

    seed: int
    model: ModelGraph
    cluster: Cluster
    num_microbatches: int
    backward: Literal["split", "fused"]
    max_stages_per_device: int

    @property
    def limits(self) -> list[float]:
        """Bytes that every rank may use."""
        types = self.cluster.device_types
        return [float(types[device.type].memory_bytes) for device in self.cluster.devices]

    def problem(self, memory_limit_bytes: FloatArray) -> PipelineProblem:
        """Return the arrays for the solvers."""
        return build_problem(
            self.model,
            self.cluster,
            num_microbatches=self.num_microbatches,
            split_backward=self.backward == "split",
            max_stages_per_rank=self.max_stages_per_device,
            memory_limit_bytes=memory_limit_bytes,
        )

    def optimum(self) -> Optimum | None:
        """Search everything."""
        return find_optimum(
            self.model,
            self.cluster,
            num_microbatches=self.num_microbatches,
            backward=self.backward,
            max_stages_per_device=self.max_stages_per_device,
            memory_limit_bytes=self.limits,
        )

    def __str__(self) -> str:
        """One line."""
        return (
            f"seed {self.seed}: {len(self.model.layers)} layers, {self.cluster.num_ranks} ranks, "
            f"{self.num_microbatches} microbatches, {self.backward}, "
            f"up to {self.max_stages_per_device} stages per rank, limits {self.limits}"
        )


def random_tiny_problem(
    seed: int, *, max_layers: int = 6, max_ranks: int = 3, max_microbatches: int = 3
) -> TinyProblem:
    """Draw device types, op overheads, links, skip edges, memory limits and a job; costs may be zero."""
    random = Random(seed)
    is_exact = random.random() < 0.5
    num_layers = random.randint(2, max_layers)
    num_ranks = random.randint(1, min(max_ranks, num_layers))
    cluster = random_cluster(random, num_ranks, is_exact)
    model = random_model(random, num_layers, list(cluster.device_types), is_exact)
    if random.random() < 0.3:
        model = _with_equal_costs(model)
    return TinyProblem(
        seed=seed,
        model=model,
        cluster=_with_memory(random, cluster, model) if random.random() < 0.6 else cluster,
        num_microbatches=random.randint(1, max_microbatches),
        backward=random.choice(["split", "fused"]),
        max_stages_per_device=random.randint(1, 3),
    )


def _with_equal_costs(model: ModelGraph) -> ModelGraph:
    """Give every layer but the last the first one's times: bodies of equal blocks are where bounds are tight."""
    document = model.to_document()
    for layer in document["layers"][:-1]:
        layer["cost"] = document["layers"][0]["cost"]
    return ModelGraph.from_document(document)


def _with_memory(random: Random, cluster: Cluster, model: ModelGraph) -> Cluster:
    """Give each device type about what a fair share of the model needs, from hopeless to ample."""
    state = sum(layer.state_bytes for layer in model.layers) / cluster.num_ranks
    activation = sum(layer.activation_bytes for layer in model.layers) / cluster.num_ranks
    transient = max(
        layer.workspace_bytes + layer.weight_stash_bytes + layer.output_bytes for layer in model.layers
    )
    document = cluster.to_document()
    for kind in document["device_types"].values():
        need = random.uniform(0.8, 1.6) * state + random.uniform(0.8, 3.0) * activation + transient
        kind["memory_bytes"] = max(1, int(need))
    return Cluster.from_document(document)
