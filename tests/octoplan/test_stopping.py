"""Solvers that are asked to stop end with what they have, and what they say still holds."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from octoplan.certificate import certify, strongest_formula
from octoplan.ordering import confirm
from octoplan.problem_builder import build_problem
from octoplan.proof import prove
from octoplan.stopping import run_stoppable
from octoplan.tuner import Budget, Pricer, search, starting_assignments
from octoplan_solvers.benders import Price, solve_by_benders
from octoplan_solvers.list_scheduling import ListScheduler, best_of_portfolio
from octoplan_solvers.order_search import periodic_order
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.staged import build_staged
from tests.builders import make_cluster, make_layer, make_model


def chain(num_layers: int, num_ranks: int, num_microbatches: int) -> PipelineProblem:
    times = np.random.default_rng(num_layers).uniform(0.5, 2.0, size=(num_layers, 3))
    layers = [make_layer(f"l{index}", *row.tolist()) for index, row in enumerate(times)]
    return build_problem(
        make_model(layers),
        make_cluster(num_ranks, latency_s=0.05),
        num_microbatches=num_microbatches,
        max_stages_per_rank=3,
    )


def set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_the_event_is_set_once_the_caller_says_so_and_in_the_callers_thread() -> None:
    asked: list[threading.Thread] = []

    def should_stop() -> bool:
        asked.append(threading.current_thread())
        return len(asked) >= 3

    def solve(event: threading.Event) -> str:
        return "stopped" if event.wait(60) else "never asked"

    assert run_stoppable(solve, should_stop) == "stopped"
    assert set(asked) == {threading.current_thread()}


def test_an_error_of_the_caller_ends_the_solver_too() -> None:
    was_asked: list[bool] = []

    def solve(event: threading.Event) -> None:
        was_asked.append(event.wait(60))

    def should_stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stoppable(solve, should_stop)
    assert was_asked == [True]


def test_a_quick_solver_is_not_asked_to_stop() -> None:
    assert run_stoppable(lambda event: event.is_set(), lambda: True) is False


def test_benders_stopped_before_it_begins_has_the_formulas_bound() -> None:
    problem = chain(5, 2, 3)
    result = solve_by_benders(problem, lambda *_: Price(9e9, 9e9), time_limit_s=60, stop=set_event())
    assert result.status == "unknown"
    assert result.num_priced == 0
    assert result.bound_s == strongest_formula(problem).seconds


def test_a_proof_stopped_early_keeps_the_incumbent_and_a_valid_bound() -> None:
    problem = chain(7, 3, 4)
    start = search(Pricer(problem), starting_assignments(problem), Budget(0.0, 200), seed=0)
    assert start is not None
    plan, bound = prove(problem, start, time_limit_s=600, seed=0, should_stop=lambda: True)
    assert plan is not None
    assert plan.makespan_s <= start.makespan_s
    assert bound.seconds <= plan.makespan_s


def test_a_periodic_order_stopped_at_once_is_none_or_within_limits() -> None:
    problem = chain(12, 3, 200)
    staged = build_staged(problem, starting_assignments(problem)[-1])
    peak = 12.0 * 8
    staged = staged.with_limit(staged.state_bytes + peak)
    evaluate = confirm(staged)
    stopped = periodic_order(staged, evaluate, stop=set_event())
    if stopped.order is not None:
        assert evaluate(stopped.order) == stopped.objective_s
    else:
        assert stopped.status == "unknown"


def test_the_portfolio_stopped_after_one_rule_has_that_ones_makespan() -> None:
    problem = chain(12, 3, 8)
    scheduler = ListScheduler(build_staged(problem, starting_assignments(problem)[-1]))
    rule, makespan = best_of_portfolio(scheduler, should_stop=lambda: True)
    assert makespan == scheduler.makespan(rule.on(scheduler.staged))
    assert makespan >= best_of_portfolio(scheduler)[1]


def test_a_model_that_takes_all_the_time_to_state_is_not_stated() -> None:
    problem = chain(60, 20, 4)
    skipped = certify(problem, time_limit_s=0.05, seed=0)
    assert skipped.master is None
    assert skipped.bound.seconds >= strongest_formula(problem).seconds


def test_under_constraints_it_is_stated_all_the_same() -> None:
    """Its assignments may be the only ones that keep them."""
    problem = chain(60, 20, 4)
    constraints = replace(problem.constraints, pins=((59, 0),))
    found = certify(replace(problem, constraints=constraints), time_limit_s=0.05, seed=0)
    assert found.master is not None


def test_a_budget_is_late_by_seconds_or_when_stopped_never_by_evaluations() -> None:
    assert Budget(0.0).is_late(1.0)
    assert not Budget(3600.0).is_late(0.5)
    assert not Budget(0.0, max_evaluations=10, evaluations=99).is_late(0.5)
    assert Budget(3600.0, should_stop=lambda: True).is_late(0.5)
