"""`AssignmentList`: every partition and placement of a small problem, the smallest makespan bound first.

The bounds are those of `octoplan_solvers.placement_check.assignment_bound`, for all placements of a partition at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb

import numpy as np
import numpy.typing as npt

from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.placement_check import least_transfer, surely_held_bytes
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.symmetry import interchangeable_ranks

#: Assignments up to which a list is made, and placements up to which those that are not allowed are sorted out.
MOST_ASSIGNMENTS = 200_000
_MOST_PLACEMENTS = 1_000_000
#: Share of a limit within which two sums of bytes count as equal.
_TOLERANCE = 1e-9

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class AssignmentList:
    """Assignments that memory of one microbatch allows, one for each naming of interchangeable ranks.

    ``A`` assignments in all. Declared constraints have not been looked at, except that they tell ranks apart.
    """

    #: Ends of the stages by partition, and ranks of the stages by number of stages, ``(placements, stages)``.
    partitions: list[tuple[int, ...]]
    placements: dict[int, IntArray]
    #: ``(A,)`` rows by bound: which partition, which placement of so many stages, and the bound in seconds.
    partition_of: IntArray
    placement_of: IntArray
    bound_s: FloatArray

    def __len__(self) -> int:
        return len(self.bound_s)

    def assignment(self, row: int) -> Assignment:
        """Return the assignment of a row."""
        ends = self.partitions[self.partition_of[row]]
        ranks = self.placements[len(ends)][self.placement_of[row]]
        return Assignment(tuple(pairwise((0, *ends))), tuple(ranks.tolist()))


def list_assignments(problem: PipelineProblem) -> AssignmentList | None:
    """Return the list, None if it would be too long."""
    most = min(problem.num_layers, problem.num_ranks * problem.max_stages_per_rank)
    numbers = range(problem.num_ranks, most + 1)
    if numbers and problem.num_ranks ** numbers[-1] > _MOST_PLACEMENTS:
        return None
    placements = {number: _placements(problem, number) for number in numbers}
    total = sum(len(ranks) * comb(problem.num_layers - 1, number - 1) for number, ranks in placements.items())
    if total > MOST_ASSIGNMENTS:
        return None
    costs = _Costs(problem)
    partitions: list[tuple[int, ...]] = []
    rows: list[tuple[IntArray, IntArray, FloatArray]] = []
    for number, ranks in placements.items():
        for cuts in combinations(range(1, problem.num_layers), number - 1):
            allowed, bounds = costs.price((*cuts, problem.num_layers), ranks)
            rows.append((np.full(len(allowed), len(partitions)), allowed, bounds))
            partitions.append((*cuts, problem.num_layers))
    partition_of, placement_of, bound_s = (
        np.concatenate([row[column] for row in rows]) if rows else np.zeros(0) for column in range(3)
    )
    by_bound = np.argsort(bound_s, kind="stable")
    return AssignmentList(
        partitions,
        placements,
        partition_of[by_bound].astype(np.int64),
        placement_of[by_bound].astype(np.int64),
        bound_s[by_bound].astype(np.float64),
    )


def _placements(problem: PipelineProblem, num_stages: int) -> IntArray:
    """Return ``(placements, stages)`` ranks: each rank is used, none too often, equal ones appear in their order."""
    num_ranks = problem.num_ranks
    codes = np.arange(num_ranks**num_stages)
    ranks = np.stack([codes // num_ranks**place % num_ranks for place in reversed(range(num_stages))], axis=1)
    is_on = ranks[:, :, None] == np.arange(num_ranks)
    number = is_on.sum(axis=1)
    keep = ((number >= 1) & (number <= problem.max_stages_per_rank)).all(axis=1)
    first = is_on.argmax(axis=1)
    for group in interchangeable_ranks(problem):
        for one, other in pairwise(group):
            keep &= first[:, one] < first[:, other]
    kept: IntArray = ranks[keep].astype(np.int64)
    return kept


class _Costs:
    """What the bounds of one partition are computed from."""

    def __init__(self, problem: PipelineProblem) -> None:
        self._problem = problem
        self._forward = problem.forward_s[problem.rank_type]
        self._backward = problem.backward_input_s[problem.rank_type]
        self._weight = problem.backward_weight_s[problem.rank_type]
        #: Of these, what a microbatch's way back has to wait for: of a split job only the first layer's.
        self._last_weight = self._weight.copy()
        if problem.split_backward:
            self._last_weight[:, 1:] = 0.0
        self._overhead = float(problem.op_overhead_s.min())
        self._held = surely_held_bytes(problem)
        sizes = problem.output_bytes[:-1].tolist()
        self._crossing = np.array([0.0, *(least_transfer(problem, size) + self._overhead for size in sizes)])

    def price(self, ends: tuple[int, ...], ranks: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the placements of a partition that memory allows, and their bounds in seconds."""
        stages_of_rank = (ranks[:, :, None] == np.arange(self._problem.num_ranks)).sum(axis=1)
        rank_of = np.repeat(ranks, np.diff((0, *ends)), axis=1)
        allowed = np.flatnonzero(self._fits(rank_of))
        rank_of, stages_of_rank = rank_of[allowed], stages_of_rank[allowed]
        changes = np.zeros(rank_of.shape, np.bool_)
        changes[:, 1:] = rank_of[:, 1:] != rank_of[:, :-1]
        bounds = [self._one_microbatch(rank_of, changes)]
        for rank in range(self._problem.num_ranks):
            bounds.append(self._rank_bound(rank, rank_of, changes, stages_of_rank[:, rank]))
        return allowed, np.max(bounds, axis=0)

    def _fits(self, rank_of: IntArray) -> BoolArray:
        problem = self._problem
        fits = np.ones(len(rank_of), np.bool_)
        for rank in range(problem.num_ranks):
            on = rank_of == rank
            activation, state = on @ self._held, on @ problem.state_bytes
            room = float(problem.memory_limit_bytes[rank]) * (1 + _TOLERANCE)
            fits &= activation + state <= room
            fits &= activation <= problem.dynamic_limit_bytes * (1 + _TOLERANCE)
        return fits

    def _rank_bound(self, rank: int, rank_of: IntArray, changes: BoolArray, stages: IntArray) -> FloatArray:
        """Head, own work and tail of a rank, as `octoplan_solvers.placement_check` explains them."""
        problem, count = self._problem, self._problem.num_microbatches
        on, layers = rank_of == rank, np.arange(problem.num_layers)
        forward, backward, weight = (
            on @ part[rank] for part in (self._forward, self._backward, self._weight)
        )
        overheads = 2 * stages * float(problem.op_overhead_s[rank])
        first = on.argmax(axis=1)[:, None]
        crossings = (changes & (layers <= first)) @ self._crossing
        head, tail, weights = (
            ((layers < first) * part[rank_of, layers]).sum(axis=1) + crossings
            for part in (self._forward, self._backward, self._last_weight)
        )
        tail = tail + weights - crossings
        if not problem.split_backward:
            bound = head + count * (overheads + forward + backward + weight) + tail
        else:
            bound = head + count * (overheads + forward + backward) + np.maximum(count * weight, tail)
        return np.asarray(bound, dtype=np.float64)

    def _one_microbatch(self, rank_of: IntArray, changes: BoolArray) -> FloatArray:
        """One microbatch through all layers, or short-cut through a skip whose ends are on different ranks."""
        problem = self._problem
        layers = np.arange(problem.num_layers)
        times = (self._forward + self._backward + self._last_weight)[rank_of, layers]
        crossings = 2 * changes * self._crossing
        best: FloatArray = times.sum(axis=1) + crossings.sum(axis=1)
        skips = zip(problem.skip_source, problem.skip_destination, problem.skip_bytes, strict=True)
        for source, destination, size in skips:
            path = (times * ((layers <= source) | (layers >= destination))).sum(axis=1)
            path += (crossings * ((layers <= source) | (layers > destination))).sum(axis=1)
            path += 2 * least_transfer(problem, float(size))
            differs = rank_of[:, source] != rank_of[:, destination]
            best = np.where(differs, np.maximum(best, path), best)
        return np.asarray(best + 2 * self._overhead, dtype=np.float64)
