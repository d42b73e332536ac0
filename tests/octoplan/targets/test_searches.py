"""The parts of restricted searches: races share a budget fairly, partition walks stay within the rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octoplan.baselines.schedule import loop_placement
from octoplan.problem_builder import build_problem
from octoplan.targets.megatron import megatron_order, stages_per_rank
from octoplan.targets.partition_search import FixedOrder, PartitionWalk, cost_of, move_boundaries
from octoplan.targets.race import ROUNDS, race
from octoplan.targets.restrictions import block_of, skips_in_one_stage, whole_blocks
from octoplan.tuner import Budget
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.problem import Assignment
from tests.builders import make_cluster, make_layer, make_model
from tests.octoplan.exports.samples import block_model, pair


class Runner:
    """Gets better by a share with every evaluation."""

    def __init__(self, best_s: float, gain: float) -> None:
        self.best_s, self._gain = best_s, gain
        self.turns: list[tuple[int, int]] = []

    def advance(self, budget: Budget, round_number: int) -> None:
        while budget.spent() < 1:
            budget.evaluations += 1
            self.best_s *= 1 - self._gain
        self.turns.append((round_number, budget.evaluations))


def test_a_race_halves_the_field_and_keeps_to_the_budget() -> None:
    runners = [Runner(10.0, 0.0), Runner(11.0, 0.001), Runner(12.0, 0.01), Runner(13.0, 0.0)]
    budget = Budget(0.0, 1000)
    ranking = race(runners, budget, until=0.9, good_enough_s=0.0)
    assert ranking[0] is runners[2]
    assert budget.evaluations == sum(count for runner in runners for _, count in runner.turns)
    assert budget.evaluations == pytest.approx(900, abs=8)
    assert sorted(len(runner.turns) for runner in runners) == [1, 1, 2, 3]
    for number in range(len(ROUNDS)):
        counts = [count for runner in runners for turn, count in runner.turns if turn == number]
        assert max(counts) - min(counts) <= 2


def test_a_race_ends_where_the_bound_is_reached() -> None:
    runners = [Runner(1.0, 0.0), Runner(2.0, 0.0)]
    race(runners, Budget(0.0, 100), until=1.0, good_enough_s=1.0)
    assert runners[0].turns == runners[1].turns == []


def test_moves_keep_the_ends_of_the_model() -> None:
    random = np.random.default_rng(0)
    seen = set()
    for _ in range(500):
        cuts = np.array([0, 4, 8, 12, 16])
        move_boundaries(cuts, random)
        assert (cuts[0], cuts[-1]) == (0, 16)
        seen.add(tuple(cuts.tolist()))
    assert (0, 5, 8, 12, 16) in seen
    assert (0, 5, 9, 13, 16) in seen
    assert (0, 3, 8, 13, 16) in seen
    assert (0, 2, 8, 12, 16) in seen


def walk_on(limit: float, constraints: PlacementConstraints, evaluations: int) -> PartitionWalk:
    problem = build_problem(
        block_model(10, seed=1),
        pair(3),
        num_microbatches=6,
        split_backward=False,
        memory_limit_bytes=np.full(3, limit),
    )
    fixed = FixedOrder(
        replace(problem, constraints=constraints), loop_placement(3, 1), megatron_order(3, 6, 1)
    )
    starts = [Assignment.from_sizes([2, 2, 8], [0, 1, 2])]
    walk = PartitionWalk(fixed, starts, Budget(0.0, 10), 0, lambda plan, dimension: None)
    if evaluations:
        walk.advance(Budget(0.0, evaluations), 0)
    return walk


def test_a_walk_improves_and_keeps_constraints() -> None:
    free = walk_on(np.inf, PlacementConstraints(), 150)
    assert free.best is not None
    start = walk_on(np.inf, PlacementConstraints(), 0)
    assert free.best_s < 0.9 * start.best_s
    kept = PlacementConstraints(boundary_after=(1,), same_stage=((2, 5),))
    bound = walk_on(np.inf, kept, 150)
    assert bound.best is not None
    assert not kept.violations(bound.best.staged.assignment)
    assert free.best_s <= bound.best_s < start.best_s


def test_a_walk_finds_its_way_into_the_memory_limits() -> None:
    loose = walk_on(np.inf, PlacementConstraints(), 0)
    assert loose.best is not None
    peak = loose.best.simulation.memory.peak_bytes.max()
    tight = walk_on(0.8 * peak, PlacementConstraints(), 0)
    assert tight.best is None
    assert tight.best_s == np.inf
    found = walk_on(0.8 * peak, PlacementConstraints(), 200)
    assert found.best is not None
    assert (found.best.simulation.memory.peak_bytes <= 0.8 * peak).all()
    assert cost_of(found.best) == found.best_s


def test_the_busiest_rank_bounds_the_makespan() -> None:
    problem = build_problem(block_model(10), pair(3), num_microbatches=6, split_backward=False)
    fixed = FixedOrder(problem, loop_placement(3, 2), megatron_order(3, 6, 2))
    random = np.random.default_rng(0)
    for _ in range(20):
        cuts = np.sort(random.choice(np.arange(1, 12), size=5, replace=False))
        assignment = Assignment.from_sizes(np.diff([0, *cuts, 12]).tolist(), fixed.ranks)
        least_s = fixed.least_s(assignment)
        assert 0 < least_s <= fixed.plan(assignment).makespan_s


@pytest.mark.parametrize(
    ("num_ranks", "num_microbatches", "counts"),
    [(1, 8, [1]), (4, 3, [1]), (4, 4, [1, 2, 3]), (2, 9, [1, 2, 3])],
)
def test_several_stages_need_ranks_and_microbatches(
    num_ranks: int, num_microbatches: int, counts: list[int]
) -> None:
    assert list(stages_per_rank(num_ranks, num_microbatches, 3)) == counts


def test_parts_of_a_block_stay_together() -> None:
    assert block_of("layers.12.attention") == block_of("layers.12") == "layers.12"
    assert block_of("lm_head") == "lm_head"
    assert block_of("xlayers.1.mlp") == "xlayers.1.mlp"
    names = [
        "embedding",
        "layers.0.attention",
        "layers.0.mlp",
        "layers.1.attention",
        "layers.1.mlp",
        "lm_head",
    ]
    problem = build_problem(
        make_model([make_layer(name) for name in names]), make_cluster(2), num_microbatches=2
    )
    assert whole_blocks(problem).constraints.same_stage == ((1, 3), (3, 5))


def test_overlapping_skips_are_counted_once() -> None:
    layers = [make_layer(f"l{index}") for index in range(8)]
    model = make_model(layers, [("l1", "l4", 1.0), ("l2", "l5", 1.0)])
    problem = build_problem(model, make_cluster(4), num_microbatches=2)
    kept = skips_in_one_stage(problem, "torch")
    assert set(kept.constraints.same_stage) == {(1, 5), (2, 6)}
    assert not kept.constraints.violations(Assignment.from_sizes([1, 5, 1, 1], [0, 1, 2, 3]))
    assert kept.constraints.violations(Assignment.from_sizes([2, 4, 1, 1], [0, 1, 2, 3]))
