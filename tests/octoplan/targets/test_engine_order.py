"""Orders as torch runs them: B instead of I and W on the first stage, microbatches by the last stage's forwards."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octoplan.engine_order import (
    as_torch_runs,
    first_stage_is_fused,
    fuse_first_stage,
    last_forwards_are_in_order,
    only_fused_first_stage,
    torch_orders,
    torch_runs_as_planned,
)
from octoplan.ordering import run_order
from octoplan.problem_builder import build_problem
from octoplan_solvers.ops import BACKWARD_INPUT, BACKWARD_WEIGHT
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment
from octoplan_solvers.staged import StagedProblem, build_staged
from tests.octoplan.exports.samples import block_model, pair
from tests.runtime import plans

MICROBATCHES = 4


def random_order(seed: int) -> tuple[StagedProblem, Order]:
    """Return a random valid order of a random placement, with any mix of B and I and W."""
    rng = random.Random(seed)
    num_ranks = rng.randint(1, 3)
    model, cluster = block_model(6, seed=seed), pair(num_ranks)
    problem = build_problem(model, cluster, num_microbatches=MICROBATCHES, max_stages_per_rank=8)
    bounds = plans.random_bounds(rng, 8, rng.randint(num_ranks, 6))
    ranks = plans.random_placement(rng, len(bounds), num_ranks)
    ops = plans.random_order(rng, bounds, MICROBATCHES, (), rng.choice((0.5, 1.0)))
    by_rank = [[op for op in ops if ranks[op[0]] == rank] for rank in range(num_ranks)]
    staged = build_staged(problem, Assignment(tuple(bounds), tuple(ranks)))
    return staged, Order.from_lists(by_rank, MICROBATCHES)


@pytest.mark.parametrize("seed", range(25))
def test_only_the_first_stages_backwards_change(seed: int) -> None:
    _, order = random_order(seed)
    for kept, dropped, at in (("W", "I", BACKWARD_WEIGHT), ("I", "W", BACKWARD_INPUT)):
        fused = fuse_first_stage(order, at).to_lists()
        expected = [
            [
                (stage, "B", m) if stage == 0 and kind == kept else (stage, kind, m)
                for stage, kind, m in own
                if not (stage == 0 and kind == dropped)
            ]
            for own in order.to_lists()
        ]
        assert fused == expected
        assert first_stage_is_fused(Order.from_lists(fused, MICROBATCHES))


@pytest.mark.parametrize("seed", range(25))
def test_every_order_becomes_one_that_torch_runs_as_planned(seed: int) -> None:
    staged, order = random_order(seed)
    plan = run_order(staged, order)
    found = torch_orders(plan)
    for one in found:
        own = one.replay.schedule.order
        assert torch_runs_as_planned(own, staged)
        ops = [op for rank in own.to_lists() for op in rank]
        assert len(ops) == len(set(ops))
        for stage in range(staged.num_stages):
            for m in range(MICROBATCHES):
                kinds = {kind for s, kind, number in ops if (s, number) == (stage, m)}
                assert kinds in ({"F", "B"}, {"F", "I", "W"})
    best = as_torch_runs(plan)
    assert best is not None
    assert best.makespan_s == min(one.makespan_s for one in found)


def test_a_plan_that_torch_runs_as_planned_stays_as_it_is() -> None:
    staged, order = random_order(0)
    for plan in torch_orders(run_order(staged, order)):
        assert torch_orders(plan) == [plan]


def test_where_memory_is_short_the_place_of_i_may_be_the_only_one() -> None:
    problem = build_problem(block_model(2), pair(1), num_microbatches=3, max_stages_per_rank=1)
    staged = build_staged(problem, Assignment(((0, 4),), (0,)))
    order = Order.from_lists([[(0, kind, m) for kind in "FIW" for m in range(3)]], 3)
    early = Order.from_lists(
        [[(0, kind, m) for m in range(3) for kind in "FI"] + [(0, "W", m) for m in range(3)]], 3
    )
    plans_at = [run_order(staged, fuse_first_stage(early, at)) for at in (BACKWARD_WEIGHT, BACKWARD_INPUT)]
    peaks = [one.simulation.memory.peak_bytes.max() for one in plans_at]
    assert peaks[1] < peaks[0]
    tight = as_torch_runs(run_order(staged.with_limit(peaks[1]), early))
    assert tight is not None
    assert tight.simulation.memory.peak_bytes.max() == peaks[1]
    assert as_torch_runs(run_order(staged.with_limit(peaks[1] / 2), order)) is None


def test_forwards_out_of_order_are_seen() -> None:
    in_order = Order.from_lists([[(0, "F", 0), (0, "F", 1)], [(1, "F", 0), (1, "F", 1)]], 2)
    assert last_forwards_are_in_order(in_order, 2)
    swapped = Order.from_lists([[(0, "F", 1), (0, "F", 0)], [(1, "F", 1), (1, "F", 0)]], 2)
    assert not last_forwards_are_in_order(swapped, 2)


def test_orders_with_an_i_on_the_first_stage_are_not_priced() -> None:
    evaluate = only_fused_first_stage(lambda order: float(len(order.ops)))
    split = Order.from_lists([[(0, "F", 0), (0, "I", 0), (0, "W", 0)]], 1)
    assert evaluate(split) is None
    assert evaluate(fuse_first_stage(split, BACKWARD_WEIGHT)) == 2.0
    later = Order.from_lists([[(0, "F", 0), (0, "B", 0)], [(1, "F", 0), (1, "I", 0), (1, "W", 0)]], 1)
    assert evaluate(later) == 5.0
    assert np.isfinite(evaluate(later) or np.inf)
