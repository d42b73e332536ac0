"""`SequenceSearch`: wider and wider searches for an order of one partition and placement."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from octoplan_solvers.order import Order
from octoplan_solvers.order_search.result import TOLERANCE, Evaluate
from octoplan_solvers.order_search.sequences.arrays import build_arrays
from octoplan_solvers.order_search.sequences.frontier import (
    CUTOFF,
    DROPPED,
    EXPANDED,
    LEVELS,
    Frontier,
    new_frontier,
)
from octoplan_solvers.order_search.sequences.levels import expand_levels
from octoplan_solvers.order_search.sequences.path import best_path, orders_of
from octoplan_solvers.staged import StagedProblem

#: Nodes that are expanded between two looks at the clock: some tenths of a second.
_NODES_PER_CALL = 5000
#: Bytes that the nodes of all levels may take, and how many nodes come to a level of a given width.
_MOST_BYTES = 2**29
_CHILDREN_PER_NODE = 8
#: A node costs about as much as this many are done in a second, for each op of the problem.
_OPS_PER_SECOND = 3_000_000
#: Not all levels are as wide as they may be: of a search so many times as wide, the share of nodes that it has more.
_WIDENING = 0.25
#: Share of a sum of seconds that may be rounding error.
_ROUNDING = 1e-12


class SequenceSearch:
    """What is known of the orders of one partition and placement.

    Attributes
    ----------
    staged:
        Partition and placement.
    order, makespan_s:
        The best order that ``evaluate`` confirmed; None and infinite if there is none yet.
    bound_s:
        No order is shorter than this.
    """

    def __init__(self, staged: StagedProblem, evaluate: Evaluate) -> None:
        self.order: Order | None = None
        self.makespan_s = math.inf
        self.bound_s = 0.0
        self.staged = staged
        self._evaluate = evaluate
        #: Whether the optimum without received tensors is known, and no order keeps the limits with it.
        self._bytes_decide = False
        #: Width of the last run, and the nodes that it expanded.
        self._last_run: tuple[int, int] | None = None
        self._num_nodes = 0

    def run(
        self, width: int, below_s: float = math.inf, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Search for an order shorter than ``below_s``: first by orders' own memory, then by every byte.

        Parameters
        ----------
        width:
            Nodes that are kept on a level. If more would be needed, the outcome may leave a gap.
        """
        self._num_nodes, found = 0, False
        if not self._bytes_decide and not self.is_settled(below_s):
            found = self._search(width, below_s, should_stop, strict=False)
        if (found or self._bytes_decide) and not self.is_settled(below_s):
            self._search(width, below_s, should_stop, strict=True)
        self._last_run = width, self._num_nodes

    def is_settled(self, below_s: float = math.inf) -> bool:
        """Tell whether no order is better than the best one, or than what it has to beat."""
        return self.bound_s >= min(below_s, self.makespan_s) * (1 - TOLERANCE)

    def expected_seconds(self, width: int) -> float:
        """Return about what a run takes, judged by the last one: the same on every machine."""
        staged = self.staged
        if self._last_run is None:
            nodes = float(width * (staged.num_ops + 2 * staged.num_microbatches * len(staged.edge_source)))
        else:
            last_width, last_nodes = self._last_run
            nodes = last_nodes * max(_WIDENING * width / last_width, 1.0)
        return nodes * staged.num_ops / _OPS_PER_SECOND

    def _search(self, width: int, below_s: float, should_stop: Callable[[], bool], *, strict: bool) -> bool:
        """Return whether a sequence was found that is shorter by more than rounding, confirmed or not."""
        arrays = build_arrays(self.staged, strict=strict)
        # A bound at this is within the tolerance of what it has to meet.
        frontier = new_frontier(arrays, min(below_s, self.makespan_s) * (1 - TOLERANCE / 2))
        enough, is_over = self.bound_s * (1 + 2 * _ROUNDING), False
        while not is_over and not should_stop():
            frontier, is_over = expand_levels(
                arrays, frontier, _affordable(width, frontier), _NODES_PER_CALL, enough
            )
        self._num_nodes += int(frontier.counters[EXPANDED])
        end, dropped = float(frontier.seconds[CUTOFF]), float(frontier.seconds[DROPPED])
        if not is_over:
            dropped = min(dropped, _least_bound(frontier))
        self.bound_s = max(self.bound_s, min(end, dropped) * (1 - _ROUNDING))
        path = best_path(arrays, frontier)
        for order in orders_of(arrays, self.staged, path) if path else ():
            self._consider(order)
        if path and not strict and dropped >= end and self.makespan_s > end * (1 + TOLERANCE):
            self._bytes_decide = True
        return bool(path)

    def _consider(self, order: Order) -> None:
        makespan_s = self._evaluate(order)
        if makespan_s is not None:
            self.take(order, makespan_s)

    def take(self, order: Order | None, makespan_s: float, bound_s: float = 0.0) -> None:
        """Take in what is known from elsewhere."""
        if order is not None and makespan_s < self.makespan_s:
            self.order, self.makespan_s = order, makespan_s
        self.bound_s = max(self.bound_s, bound_s)


def compile_kernels(staged: StagedProblem) -> None:
    """Compile all that a search needs (of any problem), and search nothing."""
    arrays = build_arrays(staged, strict=True)
    expand_levels(arrays, new_frontier(arrays, 0.0), 1, 1, 0.0)


def _least_bound(frontier: Frontier) -> float:
    """Return the least bound of the nodes that have not been expanded."""
    least = math.inf
    for level in range(LEVELS):
        count = int(frontier.counters[level])
        bounds = frontier.bound[level, :count][frontier.is_open[level, :count]]
        least = min(least, float(bounds.min(initial=np.inf)))
    return least


def _affordable(width: int, frontier: Frontier) -> int:
    """Return a width that keeps within `_MOST_BYTES`."""
    row = frontier.times.shape[2] * 8 + frontier.done.shape[2]
    return max(1, min(width, int(_MOST_BYTES / (LEVELS * _CHILDREN_PER_NODE * row))))
