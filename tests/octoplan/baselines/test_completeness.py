"""Every method, for many sizes: the plan is complete, ordered, first-in-first-out and deadlock-free."""

from __future__ import annotations

import pytest

from octoplan.baselines import BASELINES, build_schedule
from octoplan_schemas import check_plan
from tests.octoplan.baselines.plans import ALL_METHODS, RANKS, plan_of


def _microbatches(name: str, num_ranks: int) -> list[int]:
    least = BASELINES[name].microbatches_per_rank * num_ranks
    wanted = {1, 2, 3, num_ranks, num_ranks + 1, 2 * num_ranks - 1, 2 * num_ranks + 3, 3 * num_ranks}
    return sorted(number for number in wanted | {least, least + 1} if number >= max(1, least))


def test_the_contract_names_these_baselines() -> None:
    assert tuple(BASELINES) == ALL_METHODS


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("name", ALL_METHODS)
def test_plans_are_valid(name: str, num_ranks: int) -> None:
    for num_microbatches in _microbatches(name, num_ranks):
        plan = plan_of(build_schedule(name, num_ranks, num_microbatches))
        assert plan.job.microbatches == num_microbatches
        assert check_plan(plan) == []


@pytest.mark.parametrize("stages_per_rank", [1, 3, 4])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
def test_more_stages_per_rank(num_ranks: int, stages_per_rank: int) -> None:
    for name in ("interleaved-1f1b", "looped-bfs"):
        if stages_per_rank >= BASELINES[name].min_stages_per_rank:
            for num_microbatches in _microbatches(name, num_ranks):
                schedule = build_schedule(name, num_ranks, num_microbatches, stages_per_rank)
                assert len(schedule.placement) == num_ranks * stages_per_rank
                assert check_plan(plan_of(schedule)) == []


@pytest.mark.parametrize("name", ALL_METHODS)
def test_placement_and_backward(name: str) -> None:
    schedule = build_schedule(name, 3, 6)
    per_rank = len(schedule.placement) // 3
    v_shaped = BASELINES[name].placement == "v"
    assert schedule.placement == ((0, 1, 2, 2, 1, 0) if v_shaped else (0, 1, 2) * per_rank)
    kinds = {kind for order in schedule.orders for _, kind, _ in order}
    assert kinds == ({"F", "B"} if schedule.backward == "fused" else {"F", "I", "W"} | (kinds & {"B"}))
