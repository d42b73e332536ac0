"""Random list-scheduling policies: every field, sensible or not."""

from __future__ import annotations

import numpy as np

from octoplan_solvers.list_scheduling import Policy
from octoplan_solvers.staged import StagedProblem


def random_policy(staged: StagedProblem, random: np.random.Generator) -> Policy:
    """Draw a policy for the stages of a problem."""
    num_stages, num_microbatches = staged.num_stages, staged.num_microbatches
    bias = random.normal(0.0, 1.0, (num_stages, 3)) * random.choice([0.0, 1.0, 5.0, 50.0])
    if random.random() < 0.3:
        bias[:, 2] = 1e6
    most = np.full(num_stages, num_microbatches)
    if random.random() < 0.5:
        most = random.integers(1, num_microbatches + 1, num_stages)
    patience = random.choice([0.0, 0.3, 1.0, 5.0], 3).tolist()
    return Policy(
        bias=bias,
        max_in_flight=most.astype(np.int64),
        fuse=random.random(num_stages) < random.choice([0.0, 0.0, 0.5, 1.0]),
        alternate=float(random.choice([0.0, 1.5, -1.0, 20.0])),
        memory_bonus=float(random.choice([0.0, 2.0, 1e7])),
        patience=(patience[0], patience[1], patience[2]),
    )
