"""Instances of a suite: a model on a cluster, with a number of microbatches and a memory limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from octoplan.memory_limit import MemoryLimit
from octoplan.study.generator import random_inputs
from octoplan.study.sources import Sources
from octoplan_schemas import (
    Cluster,
    InputError,
    InstanceGrid,
    ModelGraph,
    ModelSource,
    Study,
    canonical_sha256,
)

#: More instances than this are a mistake of the suite.
MANY_INSTANCES = 20_000


@dataclass(frozen=True)
class Instance:
    """One problem to plan.

    Attributes
    ----------
    model_name, cluster_name:
        As the suite writes them; the documents may carry other names.
    parameters:
        What the instance was drawn from, if it is a random one.
    """

    model: ModelGraph
    cluster: Cluster
    model_name: str
    cluster_name: str
    microbatches: int
    memory_limit: str | float
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A readable name, one per instance of a suite."""
        return f"{self.model_name} {self.cluster_name} m={self.microbatches} {self.limit_text}"

    @property
    def limit_text(self) -> str:
        """The memory limit as text."""
        return self.memory_limit if isinstance(self.memory_limit, str) else f"{self.memory_limit:g}"

    @cached_property
    def sha256(self) -> str:
        """Hash of everything that the answer depends on."""
        limit = self.memory_limit
        return canonical_sha256([self.model.sha256(), self.cluster.sha256(), self.microbatches, limit])


def expand_instances(suite: Study, sources: Sources) -> list[Instance]:
    """Return every instance of a suite, in its order.

    Raises
    ------
    InputError
        If a model, cluster or limit is bad, two instances are the same, or there are too many.
    """
    instances: dict[str, Instance] = {}
    for number, grid in enumerate(suite.instances):
        for limit in grid.memory_limits:
            MemoryLimit.parse(limit)
        for instance in _expand(grid, sources):
            if instance.name in instances:
                raise InputError(
                    f"{instance.name!r} occurs twice; remove one, or give a model a name of its own",
                    field=f"instances.{number}",
                )
            instances[instance.name] = instance
            if len(instances) > MANY_INSTANCES:
                raise InputError(
                    f"more than {MANY_INSTANCES} instances; shorten the lists", field="instances"
                )
    return list(instances.values())


def _expand(grid: InstanceGrid, sources: Sources) -> Iterator[Instance]:
    for model, cluster, model_name, cluster_name, parameters in _inputs(grid, sources):
        per_rank = (count * cluster.num_ranks for count in grid.microbatches_per_rank)
        for microbatches in dict.fromkeys((*grid.microbatches, *per_rank)):
            for limit in dict.fromkeys(grid.memory_limits):
                yield Instance(model, cluster, model_name, cluster_name, microbatches, limit, parameters)


def _inputs(
    grid: InstanceGrid, sources: Sources
) -> Iterator[tuple[ModelGraph, Cluster, str, str, Mapping[str, float]]]:
    """Yield model, cluster, their names, and the parameters of a random pair."""
    if grid.random is not None:
        for pair in random_inputs(grid.random):
            yield pair.model, pair.cluster, pair.model.name, pair.cluster.name, pair.parameters
        return
    for cluster_name in grid.clusters:
        cluster = sources.cluster(cluster_name)
        for entry in grid.models:
            source = ModelSource(source=entry) if isinstance(entry, str) else entry
            model = sources.model(source, cluster)
            yield model, cluster, source.name or _stem(source.source), _stem(cluster_name), {}


def _stem(name: str) -> str:
    return PurePosixPath(name).name.removesuffix(".json")
