"""Problems with known figures, and small ones made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import StagedProblem, build_staged

_PROFILES = Path(__file__).parents[3] / "examples" / "profiles"


def chain(
    forward_s: Sequence[float],
    weight_s: Sequence[float],
    ranks: Sequence[int],
    num_microbatches: int,
    *,
    latency_s: float = 0.0,
    room: float = float("inf"),
    split: bool = True,
    **sizes: Any,
) -> StagedProblem:
    """Return one layer per stage with F = I, one byte of activation held until the end of W, and no other bytes."""
    num_layers, num_ranks = len(forward_s), max(ranks) + 1
    zeros, times = np.zeros(num_layers), np.array([forward_s], dtype=np.float64)
    arrays: dict[str, Any] = {
        "state_bytes": zeros,
        "activation_bytes": zeros + 1,
        "retained_bytes": zeros + 1,
        "weight_stash_bytes": zeros,
        "workspace_bytes": zeros,
        "output_bytes": zeros,
    }
    problem = PipelineProblem(
        forward_s=times,
        backward_input_s=times,
        backward_weight_s=np.array([weight_s], dtype=np.float64),
        rank_type=np.zeros(num_ranks, np.int64),
        op_overhead_s=np.zeros(num_ranks),
        **{**arrays, **{name: np.asarray(value, dtype=np.float64) for name, value in sizes.items()}},
        skip_source=np.zeros(0, np.int64),
        skip_destination=np.zeros(0, np.int64),
        skip_bytes=np.zeros(0),
        latency_s=np.full((num_ranks, num_ranks), latency_s),
        bandwidth=np.ones((num_ranks, num_ranks)),
        num_microbatches=num_microbatches,
        split_backward=split,
        max_stages_per_rank=num_layers,
        memory_limit_bytes=np.full(num_ranks, room),
    )
    return build_staged(problem, Assignment.from_sizes([1] * num_layers, ranks))


_UNEQUAL = ((1.0, 2.2, 1.6, 0.8), (0.9, 1.4, 1.2, 0.8))
#: (F = I of every stage, W of every stage, room in activations, best makespan, proved by CP-SAT)
TIGHT_MEMORY = (
    ((1.0,) * 4, (1.0,) * 4, 2, 84.6),
    ((1.0,) * 4, (1.0,) * 4, 3, 60.6),
    ((1.0,) * 8, (1.0,) * 8, 4, 84.8),
    ((1.0,) * 8, (1.0,) * 8, 6, 65.4),
    (*_UNEQUAL, 2, 118.7),
    (*_UNEQUAL, 3, 95.1),
    (*_UNEQUAL, 4, 93.9),
)


def nemotron_of_octopipe() -> StagedProblem:
    """Return the partition and placement of OctoPipe's released plan: 8 microbatches, no transfers, no limits."""
    table = json.loads((_PROFILES / "nemotron-nano-v2-9B.json").read_text(encoding="utf-8"))
    sizes = [2, 2, 2, 2, 2, 2, 2, 3, 2, 3, 2, 3, 2, 3, 3, 2, 3, 3, 2, 2, 2, 3, 3, 1]
    sizes[0] += 1  # the embedding
    sizes[-1] += 1  # the head
    stages_of_rank = (
        (0, 4, 8, 12, 16, 19, 20),
        (1, 5, 9, 13, 17, 21),
        (2, 6, 10, 14, 18, 22),
        (3, 7, 11, 15, 23),
    )
    rank_of = {stage: rank for rank, stages in enumerate(stages_of_rank) for stage in stages}
    ends = np.cumsum(sizes)
    durations = [
        [sum(table[kind][symbol] for symbol in table["pattern"][end - size : end]) for kind in kinds]
        for size, end in zip(sizes, ends.tolist(), strict=True)
        for kinds in [("forward_ms", "backward_ms", "weight_ms")]
    ]
    forward, backward, weight = np.array(durations).T
    staged = chain(forward, weight, [rank_of[stage] for stage in range(24)], 8)
    staged.duration_s[:, 1] = backward
    staged.duration_s[:, 3] = backward + weight
    return staged
