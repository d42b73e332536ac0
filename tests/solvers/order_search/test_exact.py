"""The exact search for an order: against a brute force, known optima, and what it must say when it is stopped."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from octoplan_solvers.order import Order
from octoplan_solvers.order_search import OrderResult, solve_order, starting_order
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import (
    brute_force,
    equal_sizes_problem,
    evaluator,
    one_layer_per_stage,
    random_problem,
)


def solve(staged: StagedProblem, time_limit_s: float = 60.0, **options: object) -> OrderResult:
    return solve_order(staged, evaluator(staged), time_limit_s=time_limit_s, **options)  # type: ignore[arg-type]


def check_claims(staged: StagedProblem, result: OrderResult, optimum: float | None) -> None:
    """Whatever a result claims must be true."""
    if result.status == "infeasible":
        assert optimum is None
        assert result.order is None
        return
    if result.bound_s is not None and optimum is not None:
        assert result.bound_s <= optimum * (1 + 1e-12)
    if result.order is None:
        assert result.status == "unknown"
        assert result.objective_s is None
        return
    assert result.objective_s == evaluator(staged)(result.order)
    assert optimum is not None
    assert result.objective_s >= optimum * (1 - 1e-12)
    if result.status == "optimal":
        assert result.objective_s == pytest.approx(optimum, rel=1e-8)


@pytest.mark.parametrize("seed", range(1, 14))
def test_whole_times_are_solved_to_the_proved_optimum(seed: int) -> None:
    staged = random_problem(np.random.default_rng(seed), whole=True)
    optimum = brute_force(staged)
    result = solve(staged, num_workers=1)
    check_claims(staged, result, optimum)
    assert result.status == ("infeasible" if optimum is None else "optimal")


@pytest.mark.parametrize("seed", range(100, 109))
def test_other_times_are_solved_and_bounded(seed: int) -> None:
    """Where received tensors decide and times are no multiples of a unit, the optimum is found but not proved."""
    staged = random_problem(np.random.default_rng(seed), whole=False)
    optimum = brute_force(staged)
    result = solve(staged, num_workers=1)
    check_claims(staged, result, optimum)
    if optimum is not None:
        assert result.objective_s == pytest.approx(optimum, rel=1e-8)


@pytest.mark.parametrize("seed", range(1000, 1008))
def test_ops_that_take_no_time_break_no_claim(seed: int) -> None:
    staged = random_problem(np.random.default_rng(seed), whole=bool(seed % 2), no_time=0.4)
    check_claims(staged, solve(staged, num_workers=1), brute_force(staged))


def test_late_arrivals_can_be_worth_a_wait() -> None:
    """Renamed microbatches make an order shorter, but then a received tensor waits for too long.

    The brute force over all orders, which takes a while, gives 21.5.
    """
    staged = one_layer_per_stage(
        [0, 1, 1, 0],
        2,
        times=np.array([[0.6, 1.0, 0.9, 1.9], [1.0, 1.4, 1.3, 0.3], [1.5, 0.2, 0.2, 1.3]]),
        latency=np.array([[0.0, 0.2], [0.3, 0.0]]),
        limit=np.array([9.0, 9.0]),
        activation=np.array([3.0, 1.0, 1.0, 2.0]),
        retained=np.array([0.0, 0.0, 0.0, 0.0]),
        stash=np.array([2.0, 2.0, 2.0, 2.0]),
        workspace=np.array([0.0, 0.0, 1.0, 1.0]),
        output=np.array([2.0, 3.0, 1.0, 0.0]),
        bandwidth=np.full((2, 2), 10.0),
        skips=[(0, 2, 2.0)],
        split=False,
    )
    result = solve(staged, num_workers=1)
    assert (result.status, result.objective_s) == ("optimal", pytest.approx(21.5))


@pytest.mark.parametrize(("room", "optimum"), [(3, 95.1), (4, 93.9)])
def test_known_optima_of_unequal_stages(room: int, optimum: float) -> None:
    forward = [1, 2.2, 1.6, 0.8]
    staged = equal_sizes_problem(
        4, 16, room, forward=forward, backward_input=forward, backward_weight=[0.9, 1.4, 1.2, 0.8]
    )
    result = solve(staged)
    assert result.status == "optimal"
    assert result.objective_s == pytest.approx(optimum)
    assert result.bound_s == pytest.approx(optimum)


def test_known_optimum_of_equal_stages() -> None:
    result = solve(equal_sizes_problem(4, 16, 3))
    assert (result.status, result.objective_s) == ("optimal", pytest.approx(60.6))


def test_one_b_may_be_better_than_i_and_w() -> None:
    """An op's overhead is paid once by B: on one rank nothing else matters."""
    staged = one_layer_per_stage(
        [0],
        3,
        times=np.array([[1.0], [2.0], [3.0]]),
        latency=np.zeros((1, 1)),
        limit=np.array([np.inf]),
        activation=np.ones(1),
        retained=np.ones(1),
        overhead=0.5,
    )
    result = solve(staged)
    assert (result.status, result.objective_s) == ("optimal", pytest.approx(3 * (6 + 2 * 0.5)))


def test_a_hint_of_the_optimum_leaves_only_the_proof() -> None:
    staged = equal_sizes_problem(3, 6, 2)
    first = solve(staged)
    assert first.order is not None
    second = solve(staged, hint=first.order)
    assert second.status == "optimal"
    assert second.objective_s == first.objective_s
    assert second.trace[0][1] == first.objective_s


def test_no_time_still_gives_the_hint_back() -> None:
    staged = equal_sizes_problem(4, 16, 3)
    hint = starting_order(staged)
    assert hint is not None
    result = solve(staged, time_limit_s=0.0, hint=hint)
    assert result.status == "feasible"
    assert result.objective_s == evaluator(staged)(hint)
    assert result.bound_s is None or result.bound_s <= 60.6


def test_orders_that_the_simulator_refuses_prove_nothing() -> None:
    result = solve_order(equal_sizes_problem(2, 4, 2), lambda order: None, time_limit_s=30.0)
    assert result.status == "unknown"
    assert (result.objective_s, result.order) == (None, None)
    assert result.bound_s is not None


def test_too_little_memory_is_proved() -> None:
    result = solve(equal_sizes_problem(2, 4, 0.5))
    assert result.status == "infeasible"
    assert result.bound_s is None


def test_an_incomplete_hint_is_refused() -> None:
    staged = equal_sizes_problem(2, 2, 2)
    hint = starting_order(staged)
    assert hint is not None
    doubled = hint.ops.copy()
    doubled[0] = doubled[1]
    with pytest.raises(ValueError, match="each once"):
        solve(staged, hint=Order(doubled, hint.rank_begin, 2))


def test_a_stop_ends_the_search() -> None:
    stop = threading.Event()
    stop.set()
    result = solve(equal_sizes_problem(8, 32, 5), stop=stop)
    assert result.status == "feasible"


def test_one_worker_and_deterministic_time_repeat_themselves() -> None:
    staged = equal_sizes_problem(4, 12, 2)
    runs = [solve(staged, 0.3, num_workers=1, seed=3, deterministic=True) for _ in range(2)]
    assert runs[0].order is not None
    assert runs[1].order is not None
    assert (runs[0].order.ops == runs[1].order.ops).all()
    assert runs[0].bound_s == runs[1].bound_s
