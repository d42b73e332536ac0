"""From a policy to an order whose exact simulation keeps every memory limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octoplan.simulator import Replay, Simulation, replay, simulate_schedule
from octoplan_solvers.list_scheduling import ListScheduler, Policy
from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, IntArray, encode
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


def run_order(staged: StagedProblem, order: Order) -> OrderedPlan:
    """Lower and simulate a given order."""
    replayed = replay(staged, order)
    return OrderedPlan(replayed, simulate_schedule(replayed.schedule))


def order_by_policy(scheduler: ListScheduler, policy: Policy) -> OrderedPlan:
    """Build a policy's order and make sure that its exact simulation fits.

    The scheduler delays an op whose output does not fit at the receiver yet; a plan has no word for such a wait,
    so there the tensor may arrive earlier and be held longer. Where that breaks a limit, the scheduler gets that
    much less room; one microbatch at a time is the last resort.

    Returns
    -------
    OrderedPlan
        Fits unless even the last resort does not; `OrderedPlan.excess_bytes` tells.
    """
    staged = scheduler.staged
    plan = run_order(staged, scheduler.schedule(policy).order)
    reserve = np.zeros(staged.num_ranks)
    for _ in range(_MAX_ATTEMPTS):
        excess = plan.excess_bytes()
        if not excess.any():
            return plan
        reserve = reserve + excess
        tighter = scheduler.with_less_room(reserve)
        if tighter is None:
            break
        plan = run_order(staged, tighter.schedule(policy).order)
    return run_order(staged, one_microbatch_at_a_time(staged)) if plan.excess_bytes().any() else plan


def one_microbatch_at_a_time(staged: StagedProblem) -> Order:
    """Return the order that needs the least memory: each microbatch all the way before the next."""
    ops: list[list[int]] = [[] for _ in range(staged.num_ranks)]
    backward = (BACKWARD_INPUT, BACKWARD_WEIGHT) if staged.split_backward else (BACKWARD,)
    ranks = staged.stage_rank.tolist()
    for microbatch in range(staged.num_microbatches):
        for stage, rank in enumerate(ranks):
            ops[rank].append(encode(stage, FORWARD, microbatch, staged.num_microbatches))
        for stage in range(staged.num_stages - 1, -1, -1):
            ops[ranks[stage]].extend(
                encode(stage, kind, microbatch, staged.num_microbatches) for kind in backward
            )
    begin: IntArray = np.cumsum([0, *(len(own) for own in ops)]).astype(np.int64)
    return Order(
        np.array([code for own in ops for code in own], dtype=np.int64), begin, staged.num_microbatches
    )
