"""Small models and clusters for tests."""

from __future__ import annotations

from collections.abc import Sequence

from octoplan_schemas import Cluster, Device, DeviceType, Layer, Link, Links, ModelGraph, OpCost, SkipEdge


def make_layer(
    name: str,
    forward_s: float = 1.0,
    backward_input_s: float = 1.0,
    backward_weight_s: float = 1.0,
    *,
    kind: str = "mlp",
    state_bytes: float = 0,
    activation_bytes: float = 1,
    weight_stash_bytes: float = 0,
    workspace_bytes: float = 0,
    output_bytes: float = 0,
) -> Layer:
    """Return a layer with one cost for every device type."""
    cost = OpCost(forward_s=forward_s, backward_input_s=backward_input_s, backward_weight_s=backward_weight_s)
    return Layer(
        name=name,
        kind=kind,
        cost={"*": cost},
        state_bytes=state_bytes,
        activation_bytes=activation_bytes,
        weight_stash_bytes=weight_stash_bytes,
        workspace_bytes=workspace_bytes,
        output_bytes=output_bytes,
    )


def make_model(layers: Sequence[Layer], skips: Sequence[tuple[str, str, float]] = ()) -> ModelGraph:
    """Return a model of these layers."""
    edges = tuple(SkipEdge(from_layer=source, to_layer=end, bytes=size) for source, end, size in skips)
    return ModelGraph(name="test-model", layers=tuple(layers), skips=edges)


def uniform_model(num_layers: int, **fields: float) -> ModelGraph:
    """Return equal layers ``l0``, ``l1``, ..."""
    return make_model([make_layer(f"l{index}", **fields) for index in range(num_layers)])  # type: ignore[arg-type]


def make_cluster(
    num_ranks: int,
    *,
    memory_bytes: float = 1e12,
    latency_s: float = 0.0,
    bandwidth: float = 1e12,
    op_overhead_s: float = 0.0,
) -> Cluster:
    """Return equal devices with equal links."""
    link = Link(latency_s=latency_s, bandwidth=bandwidth)
    device_type = DeviceType(
        memory_bytes=memory_bytes, peak_flops=1e15, memory_bandwidth=1e12, op_overhead_s=op_overhead_s
    )
    return Cluster(
        name="test-cluster",
        device_types={"gpu": device_type},
        devices=tuple(Device(name=f"gpu{rank}", type="gpu", node="n0") for rank in range(num_ranks)),
        links=Links(intra_node=link, inter_node=link),
    )
