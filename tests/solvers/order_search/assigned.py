"""One partition and placement of a tiny problem, with the independent optimum of its orders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np

from octoplan.lowering import lower
from octoplan.ordering import run_order
from octoplan_schemas import Plan, check_plan
from octoplan_solvers.brute_force import all_assignments
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment
from octoplan_solvers.staged import StagedProblem, build_staged
from tests.exhaustive.arrays import FUSED, MIXED, build_job
from tests.exhaustive.assignments import table
from tests.exhaustive.best_plan import MAX_NODES, MAX_NODES_BY_THE_BYTE
from tests.exhaustive.orders import search_all
from tests.exhaustive.replay import Replay
from tests.exhaustive.seen import Seen
from tests.random_problems import RandomJob, plan_of
from tests.tiny_problems import TinyProblem, random_tiny_problem


@dataclass(frozen=True)
class Assigned:
    """A tiny problem with its partition and placement."""

    tiny: TinyProblem
    assignment: Assignment

    @property
    def staged(self) -> StagedProblem:
        """The arrays of the order problem."""
        return build_staged(self.tiny.problem(np.array(self.tiny.limits)), self.assignment)

    @property
    def job(self) -> RandomJob:
        """What plan documents are made from."""
        tiny = self.tiny
        return RandomJob(tiny.model, tiny.cluster, self.assignment, tiny.num_microbatches, is_exact=False)

    def plan(self, order: Order) -> Plan:
        """Lower an order; the plan passes the check."""
        plan = plan_of(self.job, lower(run_order(self.staged, order).replay))
        assert check_plan(plan, self.job.edges) == []
        return plan

    def optimum(self, seen: Seen) -> tuple[float, float]:
        """Return seconds that no order falls below, and those of one that fits (infinite: none was found)."""
        tiny = self.tiny
        mode = FUSED if tiny.backward == "fused" else MIXED
        job = build_job(tiny.model, tiny.cluster, tiny.num_microbatches, tiny.limits, math.inf, mode)
        row = tuple(end for _, end in self.assignment.boundaries), self.assignment.ranks
        lower_s, found, path, _, covered = search_all(job, *table([row]), seen, False, 0.0, MAX_NODES)
        assert covered
        if found < 0:
            return math.inf, math.inf
        replay = Replay(job, row, path)
        if not replay.fits:
            most = MAX_NODES_BY_THE_BYTE
            _, found, path, _, _ = search_all(job, *table([row]), seen, True, lower_s, most)
            if found < 0:
                return lower_s, math.inf
            replay = Replay(job, row, path)
        return lower_s, replay.makespan_s


def random_assigned(seed: int) -> Assigned:
    """Draw a tiny problem and one of its assignments, whether its memory suffices or not."""
    tiny = random_tiny_problem(seed, max_layers=5, max_ranks=3, max_microbatches=3)
    problem = tiny.problem(np.array(tiny.limits))
    return Assigned(tiny, Random(seed).choice(list(all_assignments(problem))))
