"""`ListScheduler`: orders for a fixed partition and placement under memory limits, one per policy."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from octoplan_solvers.list_scheduling.kernel import list_schedule_kernel
from octoplan_solvers.list_scheduling.policy import Policy
from octoplan_solvers.list_scheduling.reserve import reserve_tables
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem

#: Share of a limit within which two sums of bytes count as equal.
MEMORY_TOLERANCE = 1e-12


class MemoryTooSmallError(ValueError):
    """Not even one microbatch at a time fits: names the rank and the bytes that are short."""

    def __init__(self, rank: int, need_bytes: float, limit_bytes: float) -> None:
        self.rank = rank
        self.need_bytes = need_bytes
        self.limit_bytes = limit_bytes
        self.short_bytes = need_bytes - limit_bytes
        super().__init__(
            f"rank {rank} needs {need_bytes:,.0f} bytes for one microbatch at a time, {self.short_bytes:,.0f} more "
            f"than its limit of {limit_bytes:,.0f}"
        )


@dataclass(frozen=True)
class ListSchedule:
    """An order and the makespan that the list scheduler saw for it, in seconds."""

    order: Order
    makespan_s: float


class ListScheduler:
    """Builds orders for one `StagedProblem`; the arrays that do not depend on the policy are built once.

    Parameters
    ----------
    staged:
        Partition, placement, durations, sizes and limits.
    rank_max_in_flight:
        ``(R,)`` microbatches with live activations that a rank may hold; None: no limit.

    Raises
    ------
    MemoryTooSmallError
        If a rank cannot hold even one microbatch at a time. Otherwise every policy leads to an order.
    """

    def __init__(self, staged: StagedProblem, rank_max_in_flight: IntArray | None = None) -> None:
        self.staged = staged
        self.held, self.future = reserve_tables(
            staged.num_ranks,
            staged.stage_rank,
            staged.activation_bytes,
            staged.workspace_bytes,
            staged.edge_source,
            staged.edge_destination,
            staged.edge_bytes,
            staged.edge_crosses,
        )
        tolerance = np.where(
            np.isfinite(staged.memory_limit_bytes), staged.memory_limit_bytes * MEMORY_TOLERANCE, 0.0
        )
        self._room: FloatArray = staged.memory_limit_bytes - staged.state_bytes + tolerance
        self._require_one_microbatch_fits()
        unlimited = np.full(staged.num_ranks, staged.num_microbatches, dtype=np.int64)
        self._rank_max_in_flight = unlimited if rank_max_in_flight is None else rank_max_in_flight
        ends = np.arange(staged.num_stages, dtype=np.int64)
        self._static = (
            *_csr(staged.stage_rank, ends, staged.num_ranks),
            *_csr(staged.edge_destination, np.arange(len(staged.edge_source)), staged.num_stages),
            *_csr(staged.edge_source, np.arange(len(staged.edge_source)), staged.num_stages),
            *_neighbours(staged),
        )

    def _require_one_microbatch_fits(self) -> None:
        staged = self.staged
        short = self.future[:, 0] - self._room
        worst = int(np.argmax(short))
        if short[worst] > 0:
            need = float(staged.state_bytes[worst] + self.future[worst, 0])
            raise MemoryTooSmallError(worst, need, float(staged.memory_limit_bytes[worst]))

    @property
    def room_bytes(self) -> FloatArray:
        """``(R,)`` bytes that each rank may use besides its state."""
        return self._room

    def with_less_room(self, reserve_bytes: FloatArray) -> ListScheduler:
        """Return a scheduler with so many bytes less per rank, but never less than one microbatch needs."""
        tighter = copy.copy(self)
        tighter._room = np.maximum(self._room - reserve_bytes, np.minimum(self.future[:, 0], self._room))
        return tighter

    def makespan(self, policy: Policy, give_up_s: float = float("inf")) -> float:
        """Return only the makespan in seconds; infinite as soon as it exceeds ``give_up_s``."""
        return float(self._run(policy, give_up_s)[2])

    def schedule(self, policy: Policy) -> ListSchedule:
        """Build the order of a policy."""
        ops, rank_of_op, makespan = self._run(policy, float("inf"))
        assert np.isfinite(makespan), "list scheduling must not dead-end"
        begin = np.searchsorted(np.sort(rank_of_op), np.arange(self.staged.num_ranks + 1))
        order = Order(
            ops[np.argsort(rank_of_op, kind="stable")], begin.astype(np.int64), self.staged.num_microbatches
        )
        return ListSchedule(order, float(makespan))

    def _run(self, policy: Policy, give_up_s: float) -> tuple[IntArray, IntArray, float]:
        staged = self.staged
        result: tuple[IntArray, IntArray, float] = list_schedule_kernel(
            staged.num_ranks,
            staged.num_microbatches,
            staged.split_backward,
            staged.stage_rank,
            staged.duration_s,
            staged.activation_bytes,
            staged.freed_at_input_bytes,
            staged.stash_bytes,
            staged.workspace_bytes,
            staged.edge_source,
            staged.edge_destination,
            staged.edge_bytes,
            staged.edge_crosses,
            staged.transfer_s,
            staged.latency_s,
            staged.edge_pair,
            len(staged.pairs),
            *self._static,
            self._room,
            staged.memory_is_limited,
            self.held,
            self.future,
            policy.bias,
            policy.max_in_flight,
            policy.fuse,
            self._rank_max_in_flight,
            policy.alternate,
            policy.memory_bonus,
            np.array(policy.patience),
            give_up_s,
        )
        return result


def _csr(keys: IntArray, values: IntArray, num_keys: int) -> tuple[IntArray, IntArray]:
    """Group ``values`` by key; return where each key begins, and the grouped values."""
    order = np.argsort(keys, kind="stable")
    begin = np.searchsorted(keys[order], np.arange(num_keys + 1))
    return begin.astype(np.int64), values[order].astype(np.int64)


def _neighbours(staged: StagedProblem) -> tuple[IntArray, IntArray]:
    """Return, per rank, the ranks that exchange tensors with it."""
    return _csr(staged.pairs[:, 0], staged.pairs[:, 1], staged.num_ranks)
