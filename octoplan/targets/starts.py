"""Assignments to start from where the placement is given and constraints rule out the usual partitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octoplan.tuner.arrays import ProblemArrays, problem_arrays
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import Assignment, PipelineProblem


def with_placements(
    problem: PipelineProblem, starts: Sequence[Assignment], placements: Sequence[tuple[int, ...]]
) -> list[Assignment]:
    """Return the starts on the given placements; one that keeps the constraints for each that has none.

    A placement stays without a start if there is none, or if only constraints between layers' ranks rule it out.
    """
    found = [start for start in starts if start.ranks in placements]
    for ranks in placements:
        if all(start.ranks != ranks for start in found):
            start = balanced_start(problem, ranks)
            if start is not None and not problem.constraints.violations(start):
                found.append(start)
    return found


def balanced_start(problem: PipelineProblem, ranks: tuple[int, ...]) -> Assignment | None:
    """Return the partition whose heaviest stage is lightest among those that keep pins and boundaries, or None.

    Dynamic programming over the layers at which stages may end, O(S L^2).
    """
    arrays = problem_arrays(problem)
    num_layers = problem.num_layers
    lightest = np.full(num_layers + 1, np.inf)
    lightest[0] = 0.0
    choices = []
    for rank in ranks:
        heaviest = np.maximum(lightest[:, None], _stage_times(problem, arrays, rank))
        choices.append(heaviest.argmin(axis=0))
        lightest = heaviest.min(axis=0)
    if not np.isfinite(lightest[num_layers]):
        return None
    ends = [num_layers]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    return Assignment.from_sizes(np.diff(ends[::-1]).tolist(), ranks)


def _stage_times(problem: PipelineProblem, arrays: ProblemArrays, rank: int) -> FloatArray:
    """Return ``(L + 1, L + 1)`` seconds of a stage from one layer to before another; infinite if not allowed."""
    num_layers = problem.num_layers
    prefix = np.concatenate([[0.0], np.cumsum(problem.rank_layer_time_s[rank])])
    times: FloatArray = prefix[None, :] - prefix[:, None]
    first, end = np.indices(times.shape)
    times[first >= end] = np.inf
    banned = np.concatenate([[0], np.cumsum(~arrays.may_run[:, rank])])
    times[banned[None, :] > banned[:, None]] = np.inf
    times[:, :-1][:, arrays.no_cut] = np.inf
    for layer in np.flatnonzero(arrays.must_cut):
        times[:layer, layer + 1 :] = np.inf
    assert times.shape == (num_layers + 1, num_layers + 1)
    return times
