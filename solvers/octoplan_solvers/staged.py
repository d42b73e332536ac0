"""`StagedProblem`: what is left to decide once partition and placement are fixed - the order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octoplan_solvers.ops import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    NUM_KINDS,
    FloatArray,
    IntArray,
)
from octoplan_solvers.problem import Assignment, PipelineProblem


@dataclass(frozen=True)
class StagedProblem:
    """Stage-level durations, sizes and edges as flat arrays. ``S`` stages, ``R`` ranks, ``E`` edges.

    Edges are the pairs of stages that hand tensors over (neighbours and skips, sorted); direction 0 is the
    activation from source to destination, direction 1 the gradient back.
    """

    assignment: Assignment
    num_ranks: int
    num_microbatches: int
    split_backward: bool
    #: ``(S,)`` rank of each stage.
    stage_rank: IntArray
    #: ``(S, 4)`` seconds of F, I, W, B, op overhead included.
    duration_s: FloatArray
    #: ``(S,)`` bytes per microbatch: held from F; of these, freed at the end of I; held from I to W; transient.
    activation_bytes: FloatArray
    freed_at_input_bytes: FloatArray
    stash_bytes: FloatArray
    workspace_bytes: FloatArray
    #: ``(E,)`` stages and size of each edge; ``crosses`` is False where both stages share a rank.
    edge_source: IntArray
    edge_destination: IntArray
    edge_bytes: FloatArray
    edge_crosses: npt.NDArray[np.bool_]
    #: ``(E, 2)`` seconds that a transfer keeps its directed rank pair busy, latency, and index of the pair.
    transfer_s: FloatArray
    latency_s: FloatArray
    edge_pair: IntArray
    #: ``(P, 2)`` directed rank pairs that are used.
    pairs: IntArray
    #: ``(R,)`` bytes: static state, and limit of the whole peak.
    state_bytes: FloatArray
    memory_limit_bytes: FloatArray
    #: ``(R,)`` microbatches between their first F and their last op on a rank; None: no limit.
    max_in_flight: IntArray | None = None

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stage_rank)

    @property
    def num_ops(self) -> int:
        """Number of compute ops if every backward is of the job's kind."""
        return self.num_stages * self.num_microbatches * (3 if self.split_backward else 2)

    @property
    def memory_is_limited(self) -> bool:
        """True if any rank has a finite limit."""
        return bool(np.isfinite(self.memory_limit_bytes).any())

    def with_limit(self, memory_limit_bytes: Any) -> StagedProblem:
        """Return the same problem under another limit per rank (or one for all)."""
        limit = np.broadcast_to(np.asarray(memory_limit_bytes, dtype=np.float64), (self.num_ranks,)).copy()
        return replace(self, memory_limit_bytes=limit)


def build_staged(problem: PipelineProblem, assignment: Assignment) -> StagedProblem:
    """Sum the layers of every stage, and find its edges.

    Sums run left to right over the layers, so that an independent implementation gets the same floats.
    """
    ranks = np.asarray(assignment.ranks, dtype=np.int64)
    source, destination, size = _edges(problem, assignment)
    ends = (
        np.stack([ranks[source], ranks[destination]], axis=1) if len(source) else np.zeros((0, 2), np.int64)
    )
    crosses = ends[:, 0] != ends[:, 1]
    directed = np.stack([ends, ends[:, ::-1]], axis=1)  # (E, 2 directions, 2 ends)
    pairs, edge_pair = number_pairs(ends)
    bandwidth = problem.bandwidth[directed[:, :, 0], directed[:, :, 1]]
    latency = problem.latency_s[directed[:, :, 0], directed[:, :, 1]]
    state = np.zeros(problem.num_ranks)
    for (first, end), rank in zip(assignment.boundaries, assignment.ranks, strict=True):
        for layer in range(first, end):
            state[rank] += problem.state_bytes[layer]
    activation = _sum_layers(problem.activation_bytes, assignment)
    retained = _sum_layers(problem.retained_bytes, assignment)
    return StagedProblem(
        assignment=assignment,
        num_ranks=problem.num_ranks,
        num_microbatches=problem.num_microbatches,
        split_backward=problem.split_backward,
        stage_rank=ranks,
        duration_s=stage_durations(problem, assignment),
        activation_bytes=activation,
        freed_at_input_bytes=activation - retained,
        stash_bytes=_sum_layers(problem.weight_stash_bytes, assignment),
        workspace_bytes=np.array(
            [problem.workspace_bytes[first:end].max() for first, end in assignment.boundaries]
        ),
        edge_source=source,
        edge_destination=destination,
        edge_bytes=size,
        edge_crosses=crosses,
        transfer_s=np.where(crosses[:, None], size[:, None] / bandwidth, 0.0),
        latency_s=np.where(crosses[:, None], latency, 0.0),
        edge_pair=edge_pair,
        pairs=pairs,
        state_bytes=state,
        memory_limit_bytes=np.minimum(problem.memory_limit_bytes, state + problem.dynamic_limit_bytes),
        max_in_flight=_max_in_flight(problem),
    )


def _max_in_flight(problem: PipelineProblem) -> IntArray | None:
    if not problem.constraints.max_in_flight:
        return None
    return problem.constraints.rank_max_in_flight(problem.num_ranks, problem.num_microbatches)


def stage_durations(problem: PipelineProblem, assignment: Assignment) -> FloatArray:
    """Return ``(S, 4)`` seconds of F, I, W, B of every stage on its rank, op overhead included."""
    durations = np.zeros((assignment.num_stages, NUM_KINDS))
    for stage, ((first, end), rank) in enumerate(zip(assignment.boundaries, assignment.ranks, strict=True)):
        kind = problem.rank_type[rank]
        overhead = problem.op_overhead_s[rank]
        forward = _left_sum(problem.forward_s[kind, first:end])
        backward_input = _left_sum(problem.backward_input_s[kind, first:end])
        backward_weight = _left_sum(problem.backward_weight_s[kind, first:end])
        durations[stage, FORWARD] = forward + overhead
        durations[stage, BACKWARD_INPUT] = backward_input + overhead
        durations[stage, BACKWARD_WEIGHT] = backward_weight + overhead
        durations[stage, BACKWARD] = backward_input + backward_weight + overhead
    return durations


def _left_sum(values: FloatArray) -> float:
    return float(sum(values.tolist()))


def _sum_layers(values: FloatArray, assignment: Assignment) -> FloatArray:
    return np.array([_left_sum(values[first:end]) for first, end in assignment.boundaries])


def _edges(problem: PipelineProblem, assignment: Assignment) -> tuple[IntArray, IntArray, FloatArray]:
    """Neighbouring stages, and skips between different stages; edges of one stage pair are one message."""
    bytes_of: dict[tuple[int, int], float] = {}
    for stage in range(assignment.num_stages - 1):
        last_layer = assignment.boundaries[stage][1] - 1
        bytes_of[stage, stage + 1] = float(problem.output_bytes[last_layer])
    stage_of = [stage for stage, (first, end) in enumerate(assignment.boundaries) for _ in range(first, end)]
    for source, destination, size in zip(
        problem.skip_source.tolist(),
        problem.skip_destination.tolist(),
        problem.skip_bytes.tolist(),
        strict=True,
    ):
        edge = stage_of[source], stage_of[destination]
        if edge[0] != edge[1]:
            bytes_of[edge] = bytes_of.get(edge, 0.0) + size
    keys = sorted(bytes_of)
    return (
        np.array([key[0] for key in keys], dtype=np.int64),
        np.array([key[1] for key in keys], dtype=np.int64),
        np.array([bytes_of[key] for key in keys], dtype=np.float64),
    )


def number_pairs(ends: IntArray) -> tuple[IntArray, IntArray]:
    """Number the directed rank pairs that edges use.

    Parameters
    ----------
    ends:
        ``(E, 2)`` ranks of each edge's source and destination.

    Returns
    -------
    pairs:
        ``(P, 2)`` source and destination rank of each pair.
    edge_pair:
        ``(E, 2)`` pair of each edge forwards and backwards, -1 where the edge stays on its rank.
    """
    crosses = ends[:, 0] != ends[:, 1]
    edge_pair = np.full((len(ends), 2), -1, dtype=np.int64)
    if not crosses.any():
        return np.zeros((0, 2), dtype=np.int64), edge_pair
    directed = np.stack([ends, ends[:, ::-1]], axis=1)[crosses].reshape(-1, 2)
    pairs, inverse = np.unique(directed, axis=0, return_inverse=True)
    edge_pair[crosses] = inverse.reshape(-1, 2)
    return pairs.astype(np.int64), edge_pair
