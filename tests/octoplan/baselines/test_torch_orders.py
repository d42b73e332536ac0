"""Orders of torch's own schedule classes: valid plans, and ours of the same name are the same or no worse."""

from __future__ import annotations

import pytest

from octoplan.baselines import BaselineSchedule, Op, StageCosts, build_schedule
from octoplan.baselines.schedule import loop_placement, v_placement
from octoplan_schemas import check_plan
from tests.octoplan.baselines.plans import most_live, plan_of, simulate_equal
from tests.octoplan.baselines.torch_orders import torch_orders

#: (torch class, our name, stages per rank).
SAME_NAME = [
    ("ScheduleGPipe", "gpipe", 1),
    ("Schedule1F1B", "1f1b", 1),
    ("ScheduleInterleaved1F1B", "interleaved-1f1b", 2),
    ("ScheduleInterleaved1F1B", "interleaved-1f1b", 3),
    ("ScheduleLoopedBFS", "looped-bfs", 1),
    ("ScheduleLoopedBFS", "looped-bfs", 3),
    ("ScheduleInterleavedZeroBubble", "zb-h1", 1),
    ("ScheduleZBVZeroBubble", "zb-v", 2),
    ("ScheduleDualPipeV", "dualpipe-v", 2),
]
#: Torch's zero bubble with several stages per rank is none of our baselines, but it is a plan.
CLASSES = [(class_name, per_rank) for class_name, _, per_rank in SAME_NAME] + [
    ("ScheduleInterleavedZeroBubble", 2)
]
#: Ranks and microbatches; every class admits all but those with fewer microbatches than it needs.
SIZES = [(1, 2), (2, 4), (2, 6), (3, 6), (4, 8), (4, 10), (4, 16), (6, 12), (4, 4), (4, 3)]
LEAST_PER_RANK = {"Schedule1F1B": 1, "ScheduleDualPipeV": 2}


def _admitted(class_name: str) -> list[tuple[int, int]]:
    least = LEAST_PER_RANK.get(class_name, 0)
    return [(ranks, microbatches) for ranks, microbatches in SIZES if microbatches >= least * ranks]


def _torch_schedule(
    class_name: str, num_ranks: int, num_microbatches: int, per_rank: int
) -> BaselineSchedule:
    orders = torch_orders(class_name, num_ranks, num_microbatches, per_rank)
    if class_name == "Schedule1F1B":
        # torch numbers the forwards of the last rank from 1 in this listing (not when it runs them).
        last: list[Op] = [(stage, kind, m - (kind == "F")) for stage, kind, m in orders[-1]]
        orders = (*orders[:-1], tuple(last))
    v_shaped = class_name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    placement = v_placement(num_ranks) if v_shaped else loop_placement(num_ranks, per_rank)
    kinds = {kind for order in orders for _, kind, _ in order}
    return BaselineSchedule(placement, orders, "split" if "W" in kinds else "fused")


@pytest.mark.parametrize(("class_name", "per_rank"), CLASSES)
def test_torch_orders_are_valid_plans(class_name: str, per_rank: int) -> None:
    for num_ranks, num_microbatches in _admitted(class_name):
        schedule = _torch_schedule(class_name, num_ranks, num_microbatches, per_rank)
        plan = plan_of(schedule)
        assert plan.job.microbatches == num_microbatches
        assert check_plan(plan) == []
        work_s = 3.0 * per_rank * num_microbatches
        assert simulate_equal(schedule).busy_s == [work_s] * num_ranks


@pytest.mark.parametrize(("class_name", "name", "per_rank"), SAME_NAME)
def test_ours_are_the_same_or_no_worse(class_name: str, name: str, per_rank: int) -> None:
    for num_ranks, num_microbatches in _admitted(class_name):
        theirs = _torch_schedule(class_name, num_ranks, num_microbatches, per_rank)
        ours = build_schedule(name, num_ranks, num_microbatches, per_rank)
        assert ours.placement == theirs.placement
        # Where torch cuts its zero-bubble phases short for want of microbatches, ours are planned anew.
        full = {"zb-h1": num_ranks, "zb-v": 2 * num_ranks - 1}.get(name, 0)
        if num_microbatches >= full:
            assert ours == theirs
        else:
            assert simulate_equal(ours).makespan_s <= simulate_equal(theirs).makespan_s
            assert max(most_live(ours)) <= max(most_live(theirs))


@pytest.mark.parametrize(
    ("class_name", "name", "per_rank"),
    [("ScheduleInterleavedZeroBubble", "zb-h1", 1), ("ScheduleZBVZeroBubble", "zb-v", 2)],
)
@pytest.mark.parametrize("costs", [(1.0, 1.25, 0.75), (1.0, 0.75, 1.25), (0.75, 1.5, 1.0)])
def test_planned_with_costs_ours_are_no_worse(
    class_name: str, name: str, per_rank: int, costs: tuple[float, float, float]
) -> None:
    for num_ranks, num_microbatches in [(2, 4), (4, 8), (6, 12)]:
        theirs = _torch_schedule(class_name, num_ranks, num_microbatches, per_rank)
        num_stages = num_ranks * per_rank
        hops = [float(theirs.placement[s] != theirs.placement[s + 1]) for s in range(num_stages - 1)]
        forward_s, input_s, weight_s = ((cost,) * num_stages for cost in costs)
        stage_costs = StageCosts(forward_s, input_s, weight_s, tuple(0.125 * hop for hop in hops))
        ours = build_schedule(name, num_ranks, num_microbatches, costs=stage_costs)
        ours_s = simulate_equal(ours, *costs, latency_s=0.125).makespan_s
        assert ours_s <= simulate_equal(theirs, *costs, latency_s=0.125).makespan_s
