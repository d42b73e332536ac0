"""Starts whose ranks are evenly loaded, made from regular ones by moving boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from octoplan.tuner.arrays import ProblemArrays
from octoplan.tuner.balance_kernel import even_loads_kernel
from octoplan_solvers.problem import Assignment, PipelineProblem

#: Temperature and steps of each walk, per layer and stage: the longer and hotter, the evener the loads and the less
#: regular the stages.
_WALKS = ((0.05, 20), (0.1, 20), (0.1, 200), (0.3, 200))
_MOST_STEPS = 200_000


def even_starts(
    problem: PipelineProblem, arrays: ProblemArrays, starts: Sequence[Assignment], *, seed: int
) -> Iterator[Assignment]:
    """Yield versions of the starts with evener loads, round by round over all of them.

    Regular starts keep the heaviest stage light. With several stages per rank it is the rank's sum that counts, and
    stages of whole layers make an even sum only where they differ.
    """
    seen = set(starts)
    several = [start for start in starts if start.num_stages > problem.num_ranks]
    for number, (hot, steps_each) in enumerate(_WALKS):
        for start in several:
            steps = min(steps_each * problem.num_layers * start.num_stages, _MOST_STEPS)
            cuts = np.array([0, *(end for _, end in start.boundaries)], dtype=np.int64)
            ranks = np.array(start.ranks, dtype=np.int64)
            evened = even_loads_kernel(arrays, cuts, ranks, steps, hot, seed + number)
            assignment = Assignment.from_sizes(np.diff(evened).tolist(), start.ranks)
            if assignment not in seen and not problem.constraints.violations(assignment):
                seen.add(assignment)
                yield assignment
