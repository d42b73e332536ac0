"""Zero-bubble orders for any costs: complete, within the method's memory, no worse than without costs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.baselines import StageCosts, build_schedule
from octoplan.baselines.building_block import BuildingBlock, v_half, v_min, zb_h1, zb_h2, zb_v
from octoplan.baselines.pricing import makespan
from octoplan.baselines.schedule import loop_placement, v_placement
from octoplan.baselines.weight_filling import fill
from octoplan_schemas import Plan
from tests.octoplan.baselines.plans import cluster_of, equal_model, most_live, plan_of
from tests.reference_simulator import simulate

BLOCKS = {"zb-h1": zb_h1, "zb-h2": zb_h2, "zb-v": zb_v, "v-half": v_half, "v-min": v_min}


@st.composite
def jobs(draw: st.DrawFn) -> tuple[str, int, int, StageCosts]:
    name = draw(st.sampled_from(sorted(BLOCKS)))
    num_ranks, num_microbatches = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    placement = build_schedule(name, num_ranks, 1).placement
    seconds = st.integers(0, 12).map(lambda eighths: eighths / 8)
    forward, backward_input, backward_weight = (tuple(draw(seconds) for _ in placement) for _ in range(3))
    latency = draw(seconds)
    transfers = [latency if a != b else 0.0 for a, b in pairwise(placement)]
    return (
        name,
        num_ranks,
        num_microbatches,
        StageCosts(forward, backward_input, backward_weight, tuple(transfers)),
    )


@settings(deadline=None, max_examples=60)
@given(jobs())
def test_any_costs(job: tuple[str, int, int, StageCosts]) -> None:
    name, num_ranks, num_microbatches, costs = job
    aware = build_schedule(name, num_ranks, num_microbatches, costs=costs)
    blind = build_schedule(name, num_ranks, num_microbatches)
    stages = range(len(aware.placement))
    wanted = Counter((s, kind, m) for s in stages for kind in "FIW" for m in range(num_microbatches))
    assert Counter(op for order in aware.orders for op in order) == wanted
    assert max(most_live(aware)) <= BLOCKS[name](num_ranks).max_live
    assert makespan(aware.orders, aware.placement, costs) <= makespan(blind.orders, blind.placement, costs)


@settings(deadline=None, max_examples=60)
@given(jobs(), st.booleans())
def test_replay_keeps_to_memory(job: tuple[str, int, int, StageCosts], reorder: bool) -> None:
    """Whatever the costs, a replay ends, runs every op, and holds no more than the block's limit."""
    name, num_ranks, num_microbatches, costs = job
    block = BLOCKS[name](num_ranks)
    placement = loop_placement(num_ranks, 1) if block.interval == 3 else v_placement(num_ranks)
    orders = fill(block, placement, num_microbatches, costs, reorder=reorder)
    assert sum(map(len, orders)) == 3 * num_microbatches * len(placement)
    schedule = build_schedule(name, num_ranks, num_microbatches)
    assert max(most_live(type(schedule)(placement, orders, "split"))) <= block.max_live


@settings(deadline=None, max_examples=60)
@given(jobs())
def test_pricing_agrees_with_the_reference_simulator(job: tuple[str, int, int, StageCosts]) -> None:
    name, num_ranks, num_microbatches, costs = job
    schedule = build_schedule(name, num_ranks, num_microbatches, costs=costs)
    document = equal_model(len(schedule.placement), 0.0, 0.0, 0.0).to_document()
    for stage, layer in enumerate(document["layers"]):
        layer["cost"]["*"] = {
            "forward_s": costs.forward_s[stage],
            "backward_input_s": costs.backward_input_s[stage],
            "backward_weight_s": costs.backward_weight_s[stage],
        }
    model = equal_model(1, 0.0, 0.0, 0.0).from_document(document)
    plan: Plan = plan_of(schedule)
    priced = makespan(schedule.orders, schedule.placement, costs)
    assert (
        simulate(plan, model, cluster_of(num_ranks, max(costs.transfer_s, default=0.0))).makespan_s == priced
    )


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_blocks_repeat_without_collision(name: str) -> None:
    """At every interval no rank is asked for two ops in one slot, and each step follows the one before."""
    for num_ranks in range(1, 65):
        block: BuildingBlock = BLOCKS[name](num_ranks)
        assert all(later > earlier for earlier, later in pairwise(block.starts))
        num_stages = len(block.starts) // 2
        placement = loop_placement(num_ranks, 1) if num_stages == num_ranks else v_placement(num_ranks)
        slots = Counter(
            (placement[min(step, 2 * num_stages - 1 - step)], start % block.interval)
            for step, start in enumerate(block.starts)
        )
        assert max(slots.values()) == 1
        assert block.interval == 3 * num_stages // num_ranks
