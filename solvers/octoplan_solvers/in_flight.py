"""Microbatches in flight on a rank: from the start of their first F there to the end of their last op."""

from __future__ import annotations

import numpy as np

from octoplan_solvers.ops import NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem


def most_in_flight(order: Order) -> IntArray:
    """Return ``(R,)`` microbatches that are in flight on each rank at most.

    A rank runs one op at a time, and its last op of a microbatch frees the last of its activations there.
    """
    most = np.zeros(order.num_ranks, dtype=np.int64)
    for rank in range(order.num_ranks):
        microbatches = order.of_rank(rank) // NUM_KINDS % order.num_microbatches
        if not len(microbatches):
            continue
        _, first = np.unique(microbatches, return_index=True)
        _, last = np.unique(microbatches[::-1], return_index=True)
        change = np.zeros(len(microbatches) + 1, dtype=np.int64)
        change[first] += 1
        change[len(microbatches) - last] -= 1
        most[rank] = np.cumsum(change).max()
    return most


def keeps_in_flight_limits(staged: StagedProblem, order: Order) -> bool:
    """Tell whether no rank has more microbatches in flight than it may."""
    return staged.max_in_flight is None or bool((most_in_flight(order) <= staged.max_in_flight).all())
