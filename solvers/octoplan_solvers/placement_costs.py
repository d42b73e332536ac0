"""The numbers of the partition and placement model, for whichever solver states it.

The model's objective is explained in `octoplan_solvers.placement_check`, which computes it from an assignment; here are
the coefficients of its linear form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octoplan_solvers.ops import FloatArray
from octoplan_solvers.placement_check import least_transfer
from octoplan_solvers.problem import PipelineProblem

#: Seconds, in units of `PlacementCosts.scale_s`, beyond which a coefficient is cut down, for solvers' arithmetic.
LARGEST_COEFFICIENT = 1e5


@dataclass(frozen=True, slots=True)
class Skip:
    """A skip edge: layers, and seconds of its transfer each way if its ends are on different ranks."""

    source: int
    destination: int
    transfer_s: float


@dataclass(frozen=True, slots=True)
class RankBound:
    """One lower bound per rank: head, op overheads, own work, and perhaps the tail.

    ``work_s`` is ``(R, L)`` seconds of all microbatches, ``stage_s`` is ``(R,)`` seconds that each stage adds.
    """

    work_s: FloatArray
    stage_s: FloatArray
    has_tail: bool


@dataclass(frozen=True, slots=True)
class PlacementCosts:
    """Coefficients in seconds. ``T`` device types, ``L`` layers, ``R`` ranks."""

    #: ``(T, L)`` one microbatch's way through the layers ahead of a rank, there and back.
    forward_s: FloatArray
    backward_s: FloatArray
    #: ``(T,)`` W of layer 0, which ends a split backward; 0 if fused.
    last_weight_s: FloatArray
    #: ``(L,)`` a change of rank between layers l - 1 and l, one way; 0 for layer 0.
    crossing_s: FloatArray
    rank_bounds: tuple[RankBound, ...]
    #: Overhead of the first op each way on one microbatch's path.
    path_overhead_s: float
    skips: tuple[Skip, ...]

    @classmethod
    def of(cls, problem: PipelineProblem) -> PlacementCosts:
        """Take the coefficients from a problem."""
        split = problem.split_backward
        weight = problem.backward_weight_s
        return cls(
            forward_s=problem.forward_s,
            backward_s=problem.backward_input_s if split else problem.backward_input_s + weight,
            last_weight_s=weight[:, 0] if split else np.zeros(len(weight)),
            crossing_s=_crossing_s(problem),
            rank_bounds=_rank_bounds(problem),
            path_overhead_s=2 * float(problem.op_overhead_s.min()),
            skips=_skips(problem),
        )

    @property
    def scale_s(self) -> float:
        """Seconds that solvers measure time in: about what the makespan is at least."""
        load = self.rank_bounds[0].work_s
        num_ranks = len(load)
        crossings = (
            2 * (num_ranks - 1) * float(self.crossing_s[1:].min(initial=np.inf) if num_ranks > 1 else 0.0)
        )
        path = float((self.forward_s + self.backward_s).min(axis=0).sum())
        scale = max(float(load.min(axis=0).sum()) / num_ranks, path + crossings)
        return scale if 0 < scale < np.inf else 1.0

    @property
    def extra_types(self) -> list[tuple[int, FloatArray, FloatArray]]:
        """For each device type: seconds by which it is slower than the fastest, ahead of a rank, there and back.

        Types that are nowhere slower are left out.
        """
        forward = self.forward_s - self.forward_s.min(axis=0)
        backward = self.backward_s - self.backward_s.min(axis=0)
        backward[:, 0] += self.last_weight_s - self.last_weight_s.min()
        slower = forward.any(axis=1) | backward.any(axis=1)
        return [(kind, forward[kind], backward[kind]) for kind in np.flatnonzero(slower).tolist()]


def _rank_bounds(problem: PipelineProblem) -> tuple[RankBound, ...]:
    count = problem.num_microbatches
    forward, backward, weight = (
        table[problem.rank_type]
        for table in (problem.forward_s, problem.backward_input_s, problem.backward_weight_s)
    )
    # A split job may use B instead of I and W, so only two ops of a stage are sure to pay the overhead.
    stage = 2 * count * problem.op_overhead_s
    all_work = RankBound(count * (forward + backward + weight), stage, has_tail=not problem.split_backward)
    if not problem.split_backward:
        return (all_work,)
    # W may be put off past the last I, which the backward through the layers ahead follows.
    return all_work, RankBound(count * (forward + backward), stage, has_tail=True)


def _crossing_s(problem: PipelineProblem) -> FloatArray:
    crossing = np.zeros(problem.num_layers)
    if problem.num_ranks > 1:
        overhead = float(problem.op_overhead_s.min())
        crossing[1:] = [
            least_transfer(problem, size) + overhead for size in problem.output_bytes[:-1].tolist()
        ]
    return crossing


def _skips(problem: PipelineProblem) -> tuple[Skip, ...]:
    columns = zip(problem.skip_source, problem.skip_destination, problem.skip_bytes, strict=True)
    return tuple(
        Skip(int(source), int(destination), least_transfer(problem, float(size)))
        for source, destination, size in columns
    )
