"""`ProblemArrays`: a `PipelineProblem` as one tuple of arrays that compiled kernels take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import PipelineProblem


class ProblemArrays(NamedTuple):
    """Prefix sums over layers make any stage's totals two look-ups. ``T`` types, ``L`` layers, ``R`` ranks."""

    num_ranks: int
    num_microbatches: int
    split: bool
    max_stages_per_rank: int
    #: ``(T, L + 1)`` prefix sums in seconds.
    forward: FloatArray
    backward_input: FloatArray
    backward_weight: FloatArray
    #: ``(L + 1,)`` prefix sums in bytes.
    state: FloatArray
    activation: FloatArray
    retained: FloatArray
    stash: FloatArray
    #: ``(L,)`` bytes.
    workspace: FloatArray
    output: FloatArray
    skip_source: IntArray
    skip_destination: IntArray
    skip_bytes: FloatArray
    #: ``(R,)`` and ``(R, R)``.
    rank_type: IntArray
    op_overhead: FloatArray
    latency: FloatArray
    bandwidth: FloatArray
    memory_limit: FloatArray
    dynamic_limit: float
    limited: bool
    #: ``(R,)`` microbatches with live activations that a rank may hold.
    rank_max_in_flight: IntArray
    #: ``(L, R)`` where a layer may run; ``(L,)`` whether a stage must not, or must, begin at a layer.
    may_run: npt.NDArray[np.bool_]
    no_cut: npt.NDArray[np.bool_]
    must_cut: npt.NDArray[np.bool_]
    #: ``(K, 3)`` pairs of layers, and 1 if they share a rank, 0 if they must not.
    rank_relations: IntArray
    min_stages_per_rank: int
    equal_stages: bool


def problem_arrays(problem: PipelineProblem) -> ProblemArrays:
    """Build the tuple once per problem."""
    num_layers, num_ranks = problem.num_layers, problem.num_ranks
    limited = bool(np.isfinite(problem.memory_limit_bytes).any() or np.isfinite(problem.dynamic_limit_bytes))
    limit = problem.memory_limit_bytes
    return ProblemArrays(
        num_ranks=num_ranks,
        num_microbatches=problem.num_microbatches,
        split=problem.split_backward,
        max_stages_per_rank=problem.max_stages_per_rank,
        forward=_prefix(problem.forward_s),
        backward_input=_prefix(problem.backward_input_s),
        backward_weight=_prefix(problem.backward_weight_s),
        state=_prefix(problem.state_bytes),
        activation=_prefix(problem.activation_bytes),
        retained=_prefix(problem.retained_bytes),
        stash=_prefix(problem.weight_stash_bytes),
        workspace=problem.workspace_bytes,
        output=problem.output_bytes,
        skip_source=problem.skip_source,
        skip_destination=problem.skip_destination,
        skip_bytes=problem.skip_bytes,
        rank_type=problem.rank_type,
        op_overhead=problem.op_overhead_s,
        latency=problem.latency_s,
        bandwidth=problem.bandwidth,
        memory_limit=np.where(np.isfinite(limit), limit * (1 + MEMORY_TOLERANCE), limit),
        dynamic_limit=float(problem.dynamic_limit_bytes) * (1 + MEMORY_TOLERANCE),
        limited=limited,
        rank_max_in_flight=np.full(num_ranks, problem.num_microbatches, dtype=np.int64),
        may_run=np.ones((num_layers, num_ranks), dtype=np.bool_),
        no_cut=np.zeros(num_layers, dtype=np.bool_),
        must_cut=np.zeros(num_layers, dtype=np.bool_),
        rank_relations=np.zeros((0, 3), dtype=np.int64),
        min_stages_per_rank=1,
        equal_stages=False,
    )


def _prefix(values: FloatArray) -> FloatArray:
    zero = np.zeros((*values.shape[:-1], 1))
    return np.ascontiguousarray(np.concatenate([zero, np.cumsum(values, axis=-1)], axis=-1))
