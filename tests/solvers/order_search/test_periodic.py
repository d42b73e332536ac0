"""Periodic orders: complete, within memory, no worse than list scheduling, and drawn out without surprises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octoplan.ordering import one_microbatch_at_a_time, run_order
from octoplan_solvers.list_scheduling import ListScheduler, portfolio
from octoplan_solvers.order_search import OrderResult, periodic_order, starting_order
from octoplan_solvers.order_search.exact import require_all_ops
from octoplan_solvers.order_search.order_memory import keeps_limits_without_transfers, peak_without_transfers
from octoplan_solvers.order_search.repetition import find_repetitions, repeat, time_seconds
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import equal_sizes_problem, evaluator, random_problem

PROBLEMS = {
    "4 ranks, room for 2": equal_sizes_problem(4, 16, 2),
    "4 ranks, room for 3": equal_sizes_problem(4, 16, 3),
    "4 ranks, ample": equal_sizes_problem(4, 16, np.inf),
    "3 ranks, V": equal_sizes_problem(3, 16, 6, placement=[0, 1, 2, 2, 1, 0]),
    "3 ranks, unequal": equal_sizes_problem(3, 16, 4, forward=[1, 2.3, 0.7], backward_weight=[0.5, 1.1, 2]),
}


def solved(staged: StagedProblem) -> OrderResult:
    result = periodic_order(staged, evaluator(staged), effort_s=0.05, policy_evaluations=20)
    assert result.order is not None
    assert result.objective_s == evaluator(staged)(require_all_ops(staged, result.order))
    return result


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("num_microbatches", [5, 131, 600])
def test_orders_are_complete_and_no_longer_than_list_schedules(name: str, num_microbatches: int) -> None:
    staged = replace(PROBLEMS[name], num_microbatches=num_microbatches)
    listed = starting_order(staged)
    assert listed is not None
    makespan = evaluator(staged)(listed)
    result = solved(staged)
    assert makespan is not None
    assert result.objective_s is not None
    assert result.objective_s <= makespan * (1 + 1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_more_microbatches_lose_no_share_of_time(name: str) -> None:
    """The bubble fraction does not grow with the number of microbatches."""
    per_microbatch = []
    for num_microbatches in (128, 1024):
        result = solved(replace(PROBLEMS[name], num_microbatches=num_microbatches))
        assert result.objective_s is not None
        per_microbatch.append(result.objective_s / num_microbatches)
    assert per_microbatch[1] <= per_microbatch[0]


def test_the_same_arguments_give_the_same_order() -> None:
    orders = [solved(equal_sizes_problem(4, 200, 3)).order for _ in range(2)]
    assert orders[0] is not None
    assert orders[1] is not None
    assert (orders[0].ops == orders[1].ops).all()


def test_nothing_that_fits_is_unknown() -> None:
    result = periodic_order(equal_sizes_problem(2, 60, 0.5), lambda order: None, effort_s=0.1)
    assert (result.status, result.order, result.objective_s) == ("unknown", None, None)


@pytest.mark.parametrize("room", [2, 3, 5])
def test_a_repetition_is_as_long_as_predicted(room: int) -> None:
    few = equal_sizes_problem(4, 48, room)
    found = 0
    for rule in portfolio(few)[:8]:
        order = ListScheduler(few).schedule(rule.on(few)).order
        for repetition in find_repetitions(few, order, 6):
            found += 1
            number = 48 + 20 * repetition.num_microbatches
            many = replace(few, num_microbatches=number)
            extended = require_all_ops(many, repeat(repetition, number))
            assert keeps_limits_without_transfers(many, extended)
            makespan = time_seconds(many, extended).makespan
            assert makespan == pytest.approx(repetition.makespan_for(number))
    assert found > 0


@pytest.mark.parametrize("seed", range(25))
def test_peaks_without_transfers_are_those_of_the_simulator(seed: int) -> None:
    """Only received tensors make a difference."""
    staged = random_problem(np.random.default_rng(seed), whole=True)
    for order in (starting_order(staged.with_limit(np.inf)), one_microbatch_at_a_time(staged)):
        assert order is not None
        peak = peak_without_transfers(staged, order)
        assert (peak <= run_order(staged, order).simulation.memory.peak_bytes + 1e-9).all()
        silent = replace(staged, edge_bytes=np.zeros(len(staged.edge_bytes)))
        assert peak == pytest.approx(run_order(silent, order).simulation.memory.peak_bytes)
