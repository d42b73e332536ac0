"""From an architecture to a model graph: memory for everybody, time for each device type."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from octoplan.cost_model import (
    DEFAULT_COMPUTE_EFFICIENCY,
    DEVICES,
    Architecture,
    ArchitectureLayer,
    Part,
    Roofline,
    Workload,
    layer_cost,
    layer_memory,
)
from octoplan.cost_model.workload import BF16_BYTES
from octoplan.importers.options import ImportOptions
from octoplan_schemas import Layer, ModelGraph, OpCost, SkipEdge


def roofline_graph(architecture: Architecture, workload: Workload, options: ImportOptions) -> ModelGraph:
    """Return the graph with roofline costs for the device types of the cluster, or of the catalogue."""
    rooflines = _rooflines(options)
    link = options.cluster.links.intra_node if options.cluster is not None else None
    known: dict[tuple[Part, ...], dict[str, OpCost]] = {}
    for layer in architecture.layers:
        if layer.parts not in known:
            operators = layer.operators(workload)
            known[layer.parts] = {
                name: layer_cost(operators, roofline, tensor_parallel=options.tensor_parallel, link=link)
                for name, roofline in rooflines.items()
            }
    costs = [known[layer.parts] for layer in architecture.layers]
    return build_graph(architecture, workload, options, costs, source="roofline")


def build_graph(
    architecture: Architecture,
    workload: Workload,
    options: ImportOptions,
    costs: list[dict[str, OpCost]],
    *,
    source: Literal["roofline", "table"],
) -> ModelGraph:
    """Return the graph with these costs, one entry per layer, and the byte counts of the architecture."""
    known: dict[tuple[Part, ...], dict[str, int]] = {}
    for layer in architecture.layers:
        if layer.parts not in known:
            known[layer.parts] = _layer_bytes(layer, architecture.hidden_size, workload, options)
    tensor_bytes = BF16_BYTES * workload.tokens * architecture.hidden_size
    return ModelGraph(
        name=architecture.name,
        layers=tuple(
            Layer(
                name=layer.name,
                kind=layer.kind,
                cost=cost,
                output_bytes=tensor_bytes * layer.output_streams,
                **known[layer.parts],
            )
            for layer, cost in zip(architecture.layers, costs, strict=True)
        ),
        skips=tuple(
            SkipEdge(from_layer=source_name, to_layer=target, bytes=tensor_bytes)
            for source_name, target in architecture.skips
        ),
        tied=architecture.tied,
        sequence_length=workload.sequence_length,
        micro_batch_size=workload.micro_batch_size,
        source=source,
    )


def _layer_bytes(
    layer: ArchitectureLayer, hidden_size: int, workload: Workload, options: ImportOptions
) -> dict[str, int]:
    memory = layer_memory(
        layer.operators(workload), workload, hidden_size=hidden_size, data_parallel=options.data_parallel
    )
    return asdict(memory)


def _rooflines(options: ImportOptions) -> dict[str, Roofline]:
    efficiency = DEFAULT_COMPUTE_EFFICIENCY if options.efficiency is None else options.efficiency
    types = DEVICES if options.cluster is None else options.cluster.device_types
    return {
        name: Roofline(device.peak_flops, device.memory_bandwidth, compute_efficiency=efficiency)
        for name, device in types.items()
    }
