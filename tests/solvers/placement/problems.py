"""Small `PipelineProblem`s for the tests of partition and placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from octoplan_solvers.problem import PipelineProblem

#: Seconds of F, I and W of a layer as shares of its time.
SHARES = np.array([0.3, 0.4, 0.3])


def make_problem(
    layer_s: Sequence[float] | Sequence[Sequence[float]],
    num_ranks: int,
    *,
    microbatches: int = 4,
    split: bool = True,
    max_stages: int = 1,
    rank_type: Sequence[int] | None = None,
    overhead_s: Sequence[float] | float = 0.0,
    state: Sequence[float] | float = 0.0,
    activation: Sequence[float] | float = 0.0,
    output: Sequence[float] | float = 0.0,
    skips: Sequence[tuple[int, int, float]] = (),
    latency_s: Any = 0.0,
    bandwidth: Any = np.inf,
    limit: Sequence[float] | float = np.inf,
    **rest: Any,
) -> PipelineProblem:
    """Build a problem; ``layer_s`` is the time of each layer (per device type, if there are several)."""
    times = np.atleast_2d(np.asarray(layer_s, dtype=float))
    num_layers = times.shape[1]

    def per_layer(values: Sequence[float] | float) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, dtype=float), (num_layers,)).copy()

    def per_rank(values: Sequence[float] | float) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, dtype=float), (num_ranks,)).copy()

    def links(values: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, dtype=float), (num_ranks, num_ranks)).copy()

    columns = list(zip(*skips, strict=True)) or [[], [], []]
    activations = per_layer(activation)
    return PipelineProblem(
        forward_s=times * SHARES[0],
        backward_input_s=times * SHARES[1],
        backward_weight_s=times * SHARES[2],
        rank_type=np.array(rank_type if rank_type is not None else [0] * num_ranks, dtype=np.int64),
        op_overhead_s=per_rank(overhead_s),
        state_bytes=per_layer(state),
        activation_bytes=activations,
        retained_bytes=activations.copy(),
        weight_stash_bytes=np.zeros(num_layers),
        workspace_bytes=np.zeros(num_layers),
        output_bytes=per_layer(output),
        skip_source=np.array(columns[0], dtype=np.int64),
        skip_destination=np.array(columns[1], dtype=np.int64),
        skip_bytes=np.array(columns[2], dtype=float),
        latency_s=links(latency_s),
        bandwidth=links(bandwidth),
        num_microbatches=microbatches,
        split_backward=split,
        max_stages_per_rank=max_stages,
        memory_limit_bytes=per_rank(limit),
        layer_names=tuple(f"layer{index}" for index in range(num_layers)),
        **rest,
    )


def node_links(num_nodes: int, ranks_per_node: int, inside: float, between: float) -> np.ndarray:
    """Return a link table with one value inside nodes and another between them."""
    node = np.repeat(np.arange(num_nodes), ranks_per_node)
    return np.where(node[:, None] == node[None, :], inside, between)
