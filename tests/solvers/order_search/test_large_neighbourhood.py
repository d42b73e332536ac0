"""Large-neighbourhood search: only confirmed improvements, the same ones every time."""

from __future__ import annotations

import numpy as np
import pytest

from octoplan.ordering import one_microbatch_at_a_time
from octoplan_solvers.order import Order
from octoplan_solvers.order_search import improve_order, starting_order
from octoplan_solvers.order_search.exact import require_all_ops
from tests.solvers.order_search.problems import equal_sizes_problem, evaluator, random_problem


@pytest.mark.parametrize("placement", [None, [0, 1, 2, 3, 3, 2, 1, 0]])
def test_it_improves_on_list_scheduling(placement: list[int] | None) -> None:
    staged = equal_sizes_problem(4, 16, 3 if placement is None else 6, placement=placement)
    start = starting_order(staged)
    assert start is not None
    evaluate = evaluator(staged)
    before = evaluate(start)
    result = improve_order(staged, start, evaluate, iterations=5, seed=1)
    assert result.order is not None
    assert result.objective_s is not None
    assert before is not None
    assert result.objective_s < before
    assert result.objective_s == evaluate(require_all_ops(staged, result.order))


def test_the_same_seed_and_iterations_give_the_same_order() -> None:
    staged = equal_sizes_problem(4, 16, 3)
    start = starting_order(staged)
    assert start is not None
    runs = [improve_order(staged, start, evaluator(staged), iterations=6, seed=5).order for _ in range(2)]
    assert runs[0] is not None
    assert runs[1] is not None
    assert (runs[0].ops == runs[1].ops).all()


def test_only_what_is_confirmed_is_accepted() -> None:
    """If the simulator refuses every new order, the old one stays."""
    staged = equal_sizes_problem(4, 12, 3)
    start = starting_order(staged)
    assert start is not None
    evaluate = evaluator(staged)

    def refuse(order: Order) -> float | None:
        return evaluate(order) if (order.ops == start.ops).all() else None

    result = improve_order(staged, start, refuse, iterations=4)
    assert result.order is not None
    assert (result.order.ops == start.ops).all()


@pytest.mark.parametrize("seed", range(20))
def test_small_problems_with_every_kind_of_cost(seed: int) -> None:
    staged = random_problem(np.random.default_rng(seed), whole=bool(seed % 2))
    start = one_microbatch_at_a_time(staged)
    evaluate = evaluator(staged)
    before = evaluate(start)
    if before is None:
        with pytest.raises(ValueError, match="limit"):
            improve_order(staged, start, evaluate, iterations=1)
        return
    result = improve_order(staged, start, evaluate, iterations=3, seed=seed)
    assert result.order is not None
    assert result.objective_s is not None
    assert result.objective_s <= before
    assert evaluate(result.order) == result.objective_s


def test_a_proof_ends_the_search() -> None:
    """A window of everything, and nothing better in it."""
    staged = equal_sizes_problem(2, 3, 2)
    start = starting_order(staged)
    assert start is not None
    result = improve_order(staged, start, evaluator(staged), iterations=50)
    assert result.status == "optimal"
    assert result.bound_s == pytest.approx(result.objective_s)


def test_some_limit_must_be_given() -> None:
    staged = equal_sizes_problem(2, 3, 2)
    start = starting_order(staged)
    assert start is not None
    with pytest.raises(ValueError, match="time_limit_s or iterations"):
        improve_order(staged, start, evaluator(staged))
