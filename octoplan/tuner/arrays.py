"""`ProblemArrays`: a `PipelineProblem` as one tuple of arrays that compiled kernels take."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import PipelineProblem

BoolArray = npt.NDArray[np.bool_]


class ProblemArrays(NamedTuple):
    """Prefix sums over layers make any stage's totals two look-ups. ``T`` types, ``L`` layers, ``R`` ranks."""

    num_ranks: int
    #: Microbatches that are scheduled, and those that are only added at the pace of the busiest rank.
    num_microbatches: int
    extra_microbatches: int
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
    may_run: BoolArray
    no_cut: BoolArray
    must_cut: BoolArray
    #: ``(K, 3)`` pairs of layers, and 1 if they share a rank, 0 if they must not.
    rank_relations: IntArray
    min_stages_per_rank: int
    equal_stages: bool
    #: Whether every backward of the first stage is one B, as an engine may ask.
    fuse_first_stage: bool


def problem_arrays(problem: PipelineProblem, *, fuse_first_stage: bool = False) -> ProblemArrays:
    """Build the tuple once per problem."""
    limited = bool(np.isfinite(problem.memory_limit_bytes).any() or np.isfinite(problem.dynamic_limit_bytes))
    limit = problem.memory_limit_bytes
    may_run, no_cut, must_cut, relations = _constraint_arrays(problem)
    rule = problem.constraints.stages_per_rank
    scheduled = scheduled_microbatches(problem)
    return ProblemArrays(
        num_ranks=problem.num_ranks,
        num_microbatches=scheduled,
        extra_microbatches=problem.num_microbatches - scheduled,
        split=problem.split_backward,
        max_stages_per_rank=min(problem.max_stages_per_rank, rule.max or problem.max_stages_per_rank),
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
        rank_max_in_flight=problem.constraints.rank_max_in_flight(
            problem.num_ranks, problem.num_microbatches
        ),
        may_run=may_run,
        no_cut=no_cut,
        must_cut=must_cut,
        rank_relations=relations,
        min_stages_per_rank=rule.min,
        equal_stages=rule.equal,
        fuse_first_stage=fuse_first_stage,
    )


def scheduled_microbatches(problem: PipelineProblem) -> int:
    """Return how many microbatches the search schedules: with many more, a steady state is all that is added.

    The makespan of all is then reckoned as that of these, plus the busiest rank's work for each of the others.
    """
    enough = max(48, 4 * problem.num_ranks)
    return problem.num_microbatches if problem.num_microbatches <= 2 * enough else enough


def _constraint_arrays(problem: PipelineProblem) -> tuple[BoolArray, BoolArray, BoolArray, IntArray]:
    """Return where layers may run, where stages must not and must begin, and relations between layers' ranks."""
    constraints = problem.constraints
    may_run = np.ones((problem.num_layers, problem.num_ranks), dtype=np.bool_)
    for layer, rank in constraints.pins:
        may_run[layer, np.arange(problem.num_ranks) != rank] = False
    no_cut = np.zeros(problem.num_layers, dtype=np.bool_)
    for first, end in constraints.same_stage:
        no_cut[first + 1 : end] = True
    must_cut = np.zeros(problem.num_layers + 1, dtype=np.bool_)
    must_cut[[layer + 1 for layer in constraints.boundary_after]] = True
    relations = [
        (one, other, same)
        for groups, same in ((constraints.same_rank, 1), (constraints.different_rank, 0))
        for group in groups
        for one, other in combinations(group, 2)
    ]
    return may_run, no_cut, must_cut[:-1], np.array(relations, dtype=np.int64).reshape(-1, 3)


def _prefix(values: FloatArray) -> FloatArray:
    zero = np.zeros((*values.shape[:-1], 1))
    return np.ascontiguousarray(np.concatenate([zero, np.cumsum(values, axis=-1)], axis=-1))
