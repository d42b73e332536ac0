"""Bubble attribution: what every rank waits for whenever it computes nothing.

Between the start of the plan's first op and the end of its last one, a rank is idle before its first op, after its
last one, and in the gaps between two ops. Every moment of that has one cause, so causes add up to the idle time:

``filling``
    Before the rank's first op, which is the culprit.
``draining``
    After the rank's last op; the culprit is the op that ends last in the whole plan.

In a gap before an op X, X waits for one input: the message M that arrived last, when X started. (Inputs from X's own
rank cannot be late: what makes them stands before X and has ended.) Let P be the op that makes M's tensor.

``memory``
    From the first moment of the gap on at which F', the next forward behind X on this rank, has all its inputs, but
    with its activation and workspace the rank's memory would exceed its limit. With more memory the rank could have run
    F' meanwhile. Memory only grows in a gap (tensors arrive), so this lasts until the gap ends. Culprit: F'.
``compute``
    Else, up to the end of P: another rank has not computed it yet. Culprit: P.
``transfer``
    Else: M is queueing behind other messages of its rank pair, or under way. Culprit: M's SEND word.

Two coarser divisions of the same idle time are in use, and printed besides:

* By rank: *edges*, before the rank's first op and after its last one, and inner *gaps*.
* By global times: *filling* before the moment at which the last rank starts its first op, *draining* after the
  moment at which the first rank ends its last op, *residual* in between. If the second moment comes before the
  first (few microbatches), what lies between them is filling.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from octoplan.simulator.attribution_kernels import NUM_CAUSES, attribution_kernel, forward_ready_kernel
from octoplan.simulator.schedule import received_bytes
from octoplan.simulator.simulation import Simulation
from octoplan_solvers.ops import FloatArray, IntArray

#: Relative excess up to which memory counts as fitting, for sums of bytes round.
_TOLERANCE = 2e-12


class Cause(StrEnum):
    """Why a rank is idle; see the module's text."""

    FILLING = "filling"
    DRAINING = "draining"
    TRANSFER = "transfer"
    COMPUTE = "compute"
    MEMORY = "memory"


#: In the order of the kernel's numbers.
CAUSES = tuple(Cause)


@dataclass(frozen=True, slots=True)
class Idle:
    """A piece of idle time of one rank, with the op or SEND word that it waits for."""

    rank: int
    start_s: float
    end_s: float
    cause: Cause
    culprit: str


@dataclass(frozen=True, slots=True)
class BubbleRow:
    """Idle seconds of one rank (or of all, if ``rank`` is None), divided in the three ways."""

    rank: int | None
    idle_s: float
    #: By cause, in the order of `CAUSES`.
    by_cause_s: tuple[float, ...]
    #: Edges, gaps.
    by_rank_s: tuple[float, ...]
    #: Filling, residual, draining.
    by_global_times_s: tuple[float, ...]


@dataclass(frozen=True)
class BubbleReport:
    """All idle time of a simulation, in ``K`` pieces: rank after rank, in order of time."""

    simulation: Simulation
    #: ``(K,)`` rank, index into `CAUSES`, and culprit: op, or number of ops + message.
    rank: IntArray
    cause: IntArray
    culprit: IntArray
    #: ``(K,)`` seconds.
    start_s: FloatArray
    end_s: FloatArray

    @cached_property
    def by_cause_s(self) -> FloatArray:
        """``(R, 5)`` seconds of every rank by cause, in the order of `CAUSES`; rows add up to the idle time."""
        return self._sum_by_rank(np.eye(NUM_CAUSES)[self.cause] * (self.end_s - self.start_s)[:, None])

    @cached_property
    def by_rank_s(self) -> FloatArray:
        """``(R, 2)`` seconds of every rank at its edges (before its first op, after its last one) and in gaps."""
        is_edge = self.cause <= CAUSES.index(Cause.DRAINING)
        length = self.end_s - self.start_s
        return self._sum_by_rank(np.stack([length * is_edge, length * ~is_edge], axis=1))

    @cached_property
    def by_global_times_s(self) -> FloatArray:
        """``(R, 3)`` seconds of every rank in filling, residual and draining by global times."""
        begin = self.simulation.schedule.order.rank_begin
        filled = self.simulation.start_s[begin[:-1]].max()
        drained = max(self.simulation.end_s[begin[1:] - 1].min(), filled)
        filling = np.minimum(self.end_s, filled) - np.minimum(self.start_s, filled)
        draining = np.maximum(self.end_s, drained) - np.maximum(self.start_s, drained)
        residual = np.clip(self.end_s, filled, drained) - np.clip(self.start_s, filled, drained)
        return self._sum_by_rank(np.stack([filling, residual, draining], axis=1))

    def _sum_by_rank(self, values: FloatArray) -> FloatArray:
        total = np.zeros((self.simulation.schedule.order.num_ranks, values.shape[1]))
        np.add.at(total, self.rank, values)
        return total

    def intervals(self) -> list[Idle]:
        """Return every piece of idle time."""
        word = self.simulation.schedule.word
        return [
            Idle(rank, start, end, CAUSES[cause], word(culprit))
            for rank, start, end, cause, culprit in zip(
                self.rank.tolist(),
                self.start_s.tolist(),
                self.end_s.tolist(),
                self.cause.tolist(),
                self.culprit.tolist(),
                strict=True,
            )
        ]

    def worst_culprits(self, count: int = 5) -> list[tuple[Cause, str, float]]:
        """Return the culprits that cost most, with their cause and their seconds over all ranks, worst first."""
        keys, inverse = np.unique(np.stack([self.cause, self.culprit], axis=1), axis=0, return_inverse=True)
        cost = np.bincount(inverse.reshape(-1), weights=self.end_s - self.start_s, minlength=len(keys))
        worst = np.argsort(-cost, kind="stable")[:count]
        word = self.simulation.schedule.word
        return [(CAUSES[keys[i, 0]], word(int(keys[i, 1])), float(cost[i])) for i in worst.tolist()]

    def rows(self) -> list[BubbleRow]:
        """Return one row per rank, and a last one with the sums over all ranks."""
        tables = (self.by_cause_s, self.by_rank_s, self.by_global_times_s)
        rows = [_row(rank, *(table[rank] for table in tables)) for rank in range(len(self.by_cause_s))]
        return [*rows, _row(None, *(table.sum(axis=0) for table in tables))]


def _row(
    rank: int | None, by_cause: FloatArray, by_rank: FloatArray, by_global_times: FloatArray
) -> BubbleRow:
    return BubbleRow(
        rank,
        float(by_cause.sum()),
        tuple(by_cause.tolist()),
        tuple(by_rank.tolist()),
        tuple(by_global_times.tolist()),
    )


def attribute_bubbles(simulation: Simulation) -> BubbleReport:
    """Give every idle moment of every rank its cause, in linear time.

    Parameters
    ----------
    simulation:
        Of a plan in which every rank computes something.
    """
    schedule = simulation.schedule
    staged, order = schedule.staged, schedule.order
    limit = staged.memory_limit_bytes * (1 + _TOLERANCE)
    rank, bounds, cause, culprit = attribution_kernel(
        order.ops,
        order.rank_begin,
        order.num_microbatches,
        simulation.start_s,
        simulation.end_s,
        simulation.binding,
        schedule.messages,
        staged.edge_source,
        staged.edge_destination,
        _forward_ready_s(simulation),
        staged.activation_bytes + staged.workspace_bytes - received_bytes(staged)[0],
        limit,
        *simulation.memory_steps(),
        float(simulation.start_s.min()),
        float(simulation.end_s.max()),
        int(np.argmax(simulation.end_s)),
    )
    return BubbleReport(simulation, rank, cause, culprit, bounds[:, 0].copy(), bounds[:, 1].copy())


def _forward_ready_s(simulation: Simulation) -> FloatArray:
    """Return ``(S, M)`` seconds at which every F has all its inputs."""
    schedule = simulation.schedule
    staged, order = schedule.staged, schedule.order
    ready: FloatArray = forward_ready_kernel(
        order.ops,
        order.num_microbatches,
        staged.num_stages,
        simulation.end_s,
        staged.edge_source,
        staged.edge_destination,
        staged.edge_crosses,
        schedule.messages,
        simulation.message_arrival_s,
    )
    return ready
