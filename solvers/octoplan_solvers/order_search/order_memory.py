"""What an order's activations, stashes and workspaces take at most: they depend on the sequence of each rank alone."""

from __future__ import annotations

import numpy as np

from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS, FloatArray
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem


def keeps_limits_without_transfers(staged: StagedProblem, order: Order) -> bool:
    """Tell whether every rank's peak without received tensors is within its limit: if not, no simulation is."""
    peak = peak_without_transfers(staged, order)
    limit = staged.memory_limit_bytes
    return bool((peak <= np.where(np.isfinite(limit), limit * (1 + 2 * MEMORY_TOLERANCE), np.inf)).all())


def peak_without_transfers(staged: StagedProblem, order: Order) -> FloatArray:
    """Return ``(R,)`` bytes, state included."""
    zero = np.zeros(staged.num_stages)
    activation, freed, stash = staged.activation_bytes, staged.freed_at_input_bytes, staged.stash_bytes
    at_start, at_end = (np.zeros((staged.num_stages, NUM_KINDS)) for _ in range(2))
    at_start[:, FORWARD] = activation
    at_end[:, [BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD]] = np.stack(
        [stash - freed, freed - activation - stash, zero - activation], axis=1
    )
    peak = staged.state_bytes.copy()
    for rank in range(order.num_ranks):
        codes = order.of_rank(rank)
        stage, kind = codes // NUM_KINDS // order.num_microbatches, codes % NUM_KINDS
        changes = at_start[stage, kind] + np.concatenate([[0.0], at_end[stage, kind][:-1]])[: len(codes)]
        held = np.cumsum(changes) + staged.workspace_bytes[stage]
        peak[rank] += held.max(initial=0.0)
    return peak
