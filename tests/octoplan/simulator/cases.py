"""Random plans with both simulations, and both simulators' results in the same words."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from octoplan.lowering import read_schedule
from octoplan.simulator import Simulation, simulate_schedule
from octoplan_schemas import Plan
from octoplan_solvers.ops import KIND_LETTERS, decode
from tests.random_problems import MessageKey, OpKey, RandomJob, plan_of, random_job, random_programs


@dataclass(frozen=True)
class SimulatedCase:
    """A random job, a random plan for it, and its fast simulation."""

    job: RandomJob
    plan: Plan
    simulation: Simulation

    @property
    def op_keys(self) -> list[OpKey]:
        """What each op of the simulation is."""
        order = self.simulation.schedule.order
        decoded = (decode(code, order.num_microbatches) for code in order.ops.tolist())
        return [(stage, KIND_LETTERS[kind], microbatch) for stage, kind, microbatch in decoded]

    @property
    def message_keys(self) -> list[MessageKey]:
        """What each message of the simulation is."""
        schedule = self.simulation.schedule
        staged = schedule.staged
        keys = []
        for code in schedule.messages.tolist():
            slot, microbatch = divmod(code, staged.num_microbatches)
            edge, direction = divmod(slot, 2)
            ends = int(staged.edge_source[edge]), int(staged.edge_destination[edge])
            keys.append((*(ends if direction == 0 else ends[::-1]), microbatch))
        return keys


def random_case(seed: int, *, limit: float | None = None, **sizes: Any) -> SimulatedCase:
    """Draw a plan and simulate it; ``limit`` is every rank's memory limit as a share of its peak."""
    random = Random(seed)
    job = random_job(random, **sizes)
    plan = plan_of(job, random_programs(job, random))
    staged = job.staged()
    simulation = simulate_schedule(read_schedule(plan, staged))
    if limit is not None:
        staged = staged.with_limit(simulation.memory.peak_bytes * limit)
        simulation = simulate_schedule(read_schedule(plan, staged))
    return SimulatedCase(job, plan, simulation)
