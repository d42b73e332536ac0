"""Exact partition of a chain that minimises the heaviest stage, for devices in a fixed order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import PipelineProblem


def minimise_heaviest_stage(
    stage_layer_cost: FloatArray, stage_cost: FloatArray | None = None
) -> list[tuple[int, int]]:
    """Cut layers ``0..L-1`` into S stages such that the most expensive stage costs as little as possible.

    Among the optimal partitions the one with the smallest sum of squared costs is taken, so that the rest of the
    stages is even, too. Dynamic programming, O(S L^2).

    Parameters
    ----------
    stage_layer_cost:
        ``(S, L)`` cost of each layer in each stage (stages may run on unequal devices).
    stage_cost:
        ``(S,)`` cost of each stage besides its layers.

    Returns
    -------
    list of (first, end)
        Layers of every stage; no stage is empty.

    Raises
    ------
    ValueError
        If there are more stages than layers.
    """
    num_stages, num_layers = stage_layer_cost.shape
    if num_stages > num_layers:
        raise ValueError(f"{num_stages} stages need at least as many layers, not {num_layers}")
    prefix = np.concatenate([np.zeros((num_stages, 1)), np.cumsum(stage_layer_cost, axis=1)], axis=1)
    fixed = np.zeros(num_stages) if stage_cost is None else stage_cost
    ends = _cut(prefix, fixed, _heaviest(prefix, fixed) * (1 + 1e-12))
    return [(int(first), int(end)) for first, end in pairwise(ends)]


def balanced_boundaries(problem: PipelineProblem, ranks: list[int]) -> list[tuple[int, int]]:
    """Return the balanced partition for stages on the given ranks: the heaviest stage is as light as can be."""
    overhead = problem.op_overhead_s[ranks] * problem.ops_per_microbatch
    return minimise_heaviest_stage(problem.rank_layer_time_s[ranks], overhead)


@kernel
def _heaviest(prefix: Any, fixed: Any) -> Any:
    """Return the smallest possible cost of the heaviest stage."""
    num_stages, width = prefix.shape
    best = np.full(width, np.inf)
    best[0] = 0.0
    for stage in range(num_stages):
        following = np.full(width, np.inf)
        for end in range(stage + 1, width):
            for first in range(stage, end):
                cost = max(best[first], fixed[stage] + prefix[stage, end] - prefix[stage, first])
                if cost < following[end]:
                    following[end] = cost
        best = following
    return best[width - 1]


@kernel
def _cut(prefix: Any, fixed: Any, heaviest: float) -> Any:
    """Return the stage ends with the smallest sum of squares among those no heavier than ``heaviest``."""
    num_stages, width = prefix.shape
    best = np.full((num_stages + 1, width), np.inf)
    best[0, 0] = 0.0
    choice = np.zeros((num_stages + 1, width), np.int64)
    for stage in range(num_stages):
        for end in range(stage + 1, width):
            for first in range(stage, end):
                cost = fixed[stage] + prefix[stage, end] - prefix[stage, first]
                if cost <= heaviest and best[stage, first] + cost * cost < best[stage + 1, end]:
                    best[stage + 1, end] = best[stage, first] + cost * cost
                    choice[stage + 1, end] = first
    ends = np.zeros(num_stages + 1, np.int64)
    ends[num_stages] = width - 1
    for stage in range(num_stages, 0, -1):
        ends[stage - 1] = choice[stage, ends[stage]]
    return ends
