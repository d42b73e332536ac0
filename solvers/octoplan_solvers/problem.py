"""`PipelineProblem`: model, cluster and job as dense arrays, built once and given to every solver."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.ops import FloatArray, IntArray


@dataclass(frozen=True)
class PipelineProblem:
    """A chain of layers to be cut into stages, placed on ranks and ordered.

    Times are seconds of one microbatch, sizes bytes. ``T`` device types, ``L`` layers, ``R`` ranks, ``K`` skips.
    """

    #: ``(T, L)`` seconds of each part of a layer.
    forward_s: FloatArray
    backward_input_s: FloatArray
    backward_weight_s: FloatArray
    #: ``(R,)`` device type of each rank, and seconds added to every op there.
    rank_type: IntArray
    op_overhead_s: FloatArray
    #: ``(L,)`` sizes (contract, section 1).
    state_bytes: FloatArray
    activation_bytes: FloatArray
    retained_bytes: FloatArray
    weight_stash_bytes: FloatArray
    workspace_bytes: FloatArray
    output_bytes: FloatArray
    #: ``(K,)`` layer indices and bytes of the skip edges.
    skip_source: IntArray
    skip_destination: IntArray
    skip_bytes: FloatArray
    #: ``(R, R)`` links, ``[source, destination]``.
    latency_s: FloatArray
    bandwidth: FloatArray
    num_microbatches: int
    #: True: I and W are separate ops; False: one fused B.
    split_backward: bool
    max_stages_per_rank: int
    #: ``(R,)`` limit of a rank's whole peak; infinite if there is none.
    memory_limit_bytes: FloatArray
    #: Limit of any rank's peak without its state; infinite if there is none.
    dynamic_limit_bytes: float = float("inf")
    layer_names: tuple[str, ...] = field(default=())
    #: What the user asks of partition and placement.
    constraints: PlacementConstraints = field(default=PlacementConstraints())

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return int(self.forward_s.shape[1])

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_type)

    @cached_property
    def layer_time_s(self) -> FloatArray:
        """``(T, L)`` seconds of all work of one microbatch in each layer."""
        total: FloatArray = self.forward_s + self.backward_input_s + self.backward_weight_s
        return total

    @cached_property
    def rank_layer_time_s(self) -> FloatArray:
        """``(R, L)`` seconds of all work of one microbatch in each layer, by rank."""
        return self.layer_time_s[self.rank_type]

    @cached_property
    def ops_per_microbatch(self) -> int:
        """Number of compute ops of one microbatch on one stage."""
        return 3 if self.split_backward else 2


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition and a placement: ``[first, end)`` layers of every stage in model order, and its rank."""

    boundaries: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.ranks)

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], ranks: Sequence[int]) -> Assignment:
        """Build from the number of layers of each stage."""
        ends = np.cumsum(sizes).tolist()
        return cls(tuple(zip([0, *ends[:-1]], ends, strict=True)), tuple(int(rank) for rank in ranks))

    @classmethod
    def from_layer_ranks(cls, ranks: Sequence[int], cuts: Collection[int] = ()) -> Assignment:
        """Build from the rank of each layer: stages begin where the rank changes, and at the layers in ``cuts``."""
        starts = [
            layer
            for layer in range(len(ranks))
            if layer == 0 or layer in cuts or ranks[layer] != ranks[layer - 1]
        ]
        ends = [*starts[1:], len(ranks)]
        return cls(tuple(zip(starts, ends, strict=True)), tuple(int(ranks[start]) for start in starts))
