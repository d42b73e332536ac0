"""Start times and tails of orders: against the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from octoplan.ordering import run_order
from octoplan_solvers.list_scheduling import ListScheduler, improve_policy
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.repetition import time_seconds
from octoplan_solvers.order_search.window import op_indices
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import equal_sizes_problem, random_problem


def some_order(staged: StagedProblem, seed: int) -> Order:
    scheduler = ListScheduler(staged.with_limit(np.inf))
    policy, _ = improve_policy(scheduler, evaluations=5, seed=seed)
    return scheduler.schedule(policy).order


@pytest.mark.parametrize("seed", range(30))
def test_starts_are_those_of_the_simulator(seed: int) -> None:
    staged = random_problem(np.random.default_rng(seed), whole=bool(seed % 2))
    order = some_order(staged, seed)
    timing = time_seconds(staged, order)
    simulation = run_order(staged, order).simulation
    assert timing.start[op_indices(order.ops, order.num_microbatches)] == pytest.approx(simulation.start_s)
    assert timing.makespan == pytest.approx(simulation.makespan_s)


@pytest.mark.parametrize("seed", range(30))
def test_tails_leave_the_simulator_s_slack(seed: int) -> None:
    """What is critical has start + tail = makespan, and nothing has more."""
    staged = random_problem(np.random.default_rng(seed), whole=bool(seed % 2))
    order = some_order(staged, seed)
    timing = time_seconds(staged, order)
    index = op_indices(order.ops, order.num_microbatches)
    slack = timing.makespan - (timing.start + timing.tail)[index]
    assert slack == pytest.approx(run_order(staged, order).simulation.slack_s, abs=1e-9)


def test_an_order_that_waits_on_itself_is_refused() -> None:
    staged = equal_sizes_problem(1, 2, 9)
    order = Order.from_lists(
        [[(0, "I", 0), (0, "F", 0), (0, "F", 1), (0, "I", 1), (0, "W", 0), (0, "W", 1)]], 2
    )
    with pytest.raises(ValueError, match="waits on itself"):
        time_seconds(staged, order)
