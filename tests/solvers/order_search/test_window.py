"""Windows: what a model of a part of an order claims must hold for the whole."""

from __future__ import annotations

import numpy as np
import pytest

from octoplan_solvers.list_scheduling import ListScheduler, improve_policy
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.exact import starting_order
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.model import Effort, solve_window
from octoplan_solvers.order_search.neighbourhoods import KINDS, Schedule, draw_window
from octoplan_solvers.order_search.window import (
    INSIDE,
    cut_window,
    replace_inside,
    sort_by_microbatch,
    time_integers,
)
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import equal_sizes_problem, evaluator, random_problem

PLACEMENTS = ([0, 1, 2], [0, 1, 2, 2, 1, 0], [0, 1, 2, 0, 1, 2])


def schedule_of(staged: StagedProblem) -> Schedule:
    order = starting_order(staged)
    assert order is not None
    times = IntegerTimes.of(staged, 100.0)
    return Schedule(staged, times, order, time_integers(staged, times, order))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_solved_window_does_what_it_claims(placement: list[int], seed: int) -> None:
    """Neither room nor time is lost by leaving out the rest: the new order has the claimed makespan, and fits."""
    staged = equal_sizes_problem(3, 6, 2 if len(placement) == 3 else 4, placement=placement)
    schedule = schedule_of(staged)
    random = np.random.default_rng(seed)
    for kind in KINDS:
        window = draw_window(schedule, kind, 20, random)
        limit = int(schedule.timing.makespan)
        found = solve_window(window, largest_makespan=limit, effort=Effort(5.0, num_workers=1))
        assert found.status == "optimal", "the present order is a solution"
        assert found.sequences is not None
        order = replace_inside(schedule.order, window, found.sequences)
        assert sorted(order.ops.tolist()) == sorted(schedule.order.ops.tolist())
        makespan = evaluator(staged)(order)
        assert makespan is not None
        assert found.bound is not None
        # Paths that miss the window are not in the model.
        assert makespan <= max(schedule.times.seconds(found.bound), schedule.times.seconds(limit)) + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_free_keeps_its_order(kind: str) -> None:
    schedule = schedule_of(equal_sizes_problem(3, 8, 3))
    window = draw_window(schedule, kind, 24, np.random.default_rng(1))
    found = solve_window(
        window, largest_makespan=int(schedule.timing.makespan), effort=Effort(5.0, num_workers=1), hint=False
    )
    assert found.sequences is not None
    fixed = [op for ops in window.ops for op in ops if not window.is_free[op]]
    assert (kind == "time") == (not fixed)
    after = replace_inside(schedule.order, window, found.sequences).to_lists()
    for before_rank, after_rank in zip(schedule.order.to_lists(), after, strict=True):
        names = {(stage, "FIW"[klass], m) for stage, klass, m in fixed}
        assert [op for op in before_rank if op in names] == [op for op in after_rank if op in names]


def test_a_window_of_everything_has_all_ops_inside() -> None:
    schedule = schedule_of(equal_sizes_problem(2, 3, 2))
    free = np.ones(schedule.timing.start.shape, dtype=np.bool_)
    window = cut_window(schedule.staged, schedule.times, schedule.order, schedule.timing, 0, 10**9, free)
    assert (window.place == INSIDE).all()
    assert window.num_free == schedule.staged.num_ops


@pytest.mark.parametrize("seed", range(20))
def test_renaming_microbatches_makes_no_order_longer(seed: int) -> None:
    """Where memory is no matter: swap the names of microbatches per stage and kind, and sort them again."""
    random = np.random.default_rng(seed)
    staged = random_problem(random, whole=True).with_limit(np.inf)
    scheduler = ListScheduler(staged)
    order = scheduler.schedule(improve_policy(scheduler, evaluations=3, seed=seed)[0]).order
    names = random.permutation(staged.num_microbatches)
    lists = [[(stage, kind, int(names[m])) for stage, kind, m in ops] for ops in order.to_lists()]
    renamed = Order.from_lists(lists, staged.num_microbatches)
    evaluate = evaluator(staged)
    back = sort_by_microbatch(renamed)
    makespan, before = evaluate(back), evaluate(order)
    assert makespan is not None
    assert before is not None
    assert makespan <= before + 1e-9
    for ops in back.to_lists():
        for stage in range(staged.num_stages):
            for kinds in ("F", "IB"):
                numbers = [m for s, kind, m in ops if s == stage and kind in kinds]
                assert numbers == sorted(numbers)
