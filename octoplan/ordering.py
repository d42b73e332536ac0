"""From a policy to an order whose exact simulation keeps every memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from octoplan.simulator import Replay, Simulation, replay, simulate_schedule
from octoplan_schemas import InputError
from octoplan_solvers.in_flight import keeps_in_flight_limits
from octoplan_solvers.list_scheduling import ListScheduler, Policy
from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import BACKWARD, FORWARD, IntArray, encode
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem

_MAX_ATTEMPTS = 8


@dataclass(frozen=True)
class OrderedPlan:
    """An order, lowered and simulated."""

    replay: Replay
    simulation: Simulation

    @property
    def staged(self) -> StagedProblem:
        """The problem that it orders."""
        return self.replay.schedule.staged

    @property
    def makespan_s(self) -> float:
        """Seconds from the first op's start to the last one's end."""
        return self.simulation.makespan_s

    def excess_bytes(self) -> np.ndarray:
        """``(R,)`` bytes above each rank's limit; zero where the peak fits."""
        return excess_bytes(self.simulation)


def excess_bytes(simulation: Simulation) -> np.ndarray:
    """Return ``(R,)`` bytes by which peaks exceed limits, 0 where they fit within rounding."""
    limit = simulation.schedule.staged.memory_limit_bytes
    over = simulation.memory.peak_bytes - limit
    tolerance = np.where(np.isfinite(limit), limit * 2 * MEMORY_TOLERANCE, 0.0)
    return np.where(over > tolerance, over, 0.0)


def confirm(staged: StagedProblem) -> Callable[[Order], float | None]:
    """Return the exact simulation of an order as the order solvers take it.

    It gives None if the order breaks a limit, or waits on itself.
    """

    def evaluate(order: Order) -> float | None:
        if not keeps_in_flight_limits(staged, order):
            return None
        try:
            plan = run_order(staged, order)
        except InputError:
            return None  # ops and messages wait on each other
        return None if plan.excess_bytes().any() else plan.makespan_s

    return evaluate


def run_order(staged: StagedProblem, order: Order) -> OrderedPlan:
    """Lower and simulate a given order."""
    replayed = replay(staged, order)
    return OrderedPlan(replayed, simulate_schedule(replayed.schedule))


def order_by_policy(scheduler: ListScheduler, policy: Policy) -> OrderedPlan:
    """Build a policy's order and make sure that its exact simulation fits.

    The scheduler delays an op whose output does not fit at the receiver yet; a plan has no word for such a wait,
    so there the tensor may arrive earlier and be held longer. Where that breaks a limit, the scheduler gets that
    much less room; then the policy gets fewer microbatches in flight, and then backwards are fused, for a gradient
    that leaves with B finds the activation gone. One microbatch at a time is the last resort.

    Returns
    -------
    OrderedPlan
        It fits: with fused backwards, one microbatch at a time is one chain of ops, so that every tensor is used as
        soon as it arrives, and needs no more than what `ListScheduler` insists on.
    """
    staged = scheduler.staged
    for choice in (policy, replace(policy, fuse=np.ones_like(policy.fuse))):
        plan = _with_less_room(scheduler, choice)
        if plan.excess_bytes().any():
            plan = _with_fewer_in_flight(scheduler, choice) or plan
        if not plan.excess_bytes().any():
            return plan
    return run_order(staged, one_microbatch_at_a_time(staged))


def _with_less_room(scheduler: ListScheduler, policy: Policy) -> OrderedPlan:
    """Take the excess of one attempt from the room of the next, until it fits or there is no more to take."""
    plan = run_order(scheduler.staged, scheduler.schedule(policy).order)
    for _ in range(_MAX_ATTEMPTS):
        excess = plan.excess_bytes()
        tighter = scheduler.with_less_room(excess)
        if (tighter.room_bytes == scheduler.room_bytes).all():
            break
        scheduler = tighter
        plan = run_order(scheduler.staged, scheduler.schedule(policy).order)
    return plan


def _with_fewer_in_flight(scheduler: ListScheduler, policy: Policy) -> OrderedPlan | None:
    """Halve the microbatches in flight per stage until the plan fits; None if even one at a time does not."""
    most = scheduler.staged.num_microbatches
    while most > 1:
        most = (most + 1) // 2
        capped = replace(policy, max_in_flight=np.minimum(policy.max_in_flight, most))
        plan = run_order(scheduler.staged, scheduler.schedule(capped).order)
        if not plan.excess_bytes().any():
            return plan
    return None


def one_microbatch_at_a_time(staged: StagedProblem) -> Order:
    """Return the order that needs the least memory: each microbatch all the way before the next, with fused B.

    Its ops form one chain, each waiting for the one before.
    """
    ops: list[list[int]] = [[] for _ in range(staged.num_ranks)]
    ranks = staged.stage_rank.tolist()
    for microbatch in range(staged.num_microbatches):
        for stage, rank in enumerate(ranks):
            ops[rank].append(encode(stage, FORWARD, microbatch, staged.num_microbatches))
        for stage in range(staged.num_stages - 1, -1, -1):
            ops[ranks[stage]].append(encode(stage, BACKWARD, microbatch, staged.num_microbatches))
    begin: IntArray = np.cumsum([0, *(len(own) for own in ops)]).astype(np.int64)
    return Order(
        np.array([code for own in ops for code in own], dtype=np.int64), begin, staged.num_microbatches
    )
