"""What emulated devices are predicted to take, against the compiler's simulator, and how a calibration is read."""

from __future__ import annotations

import random

import numpy as np
import pytest

import octoplan
from octoplan.picture import op_times, transfer_times
from octoplan_runtime.emulation import EmulatedCosts, MachineCosts, predicted_ops
from octoplan_runtime.emulation.calibration import calibration_plan, machine_costs
from octoplan_runtime.emulation.prediction import makespan_s
from octoplan_runtime.emulation.workload import emulated_workload
from octoplan_schemas import InputError, Plan, check_plan, stage_edges
from tests.runtime import plans


def costed(plan: Plan, rng: random.Random, skips=()) -> Plan:
    """Record random costs in a plan."""
    document = plan.to_document()
    sizes = ("activation_bytes", "retained_bytes", "weight_stash_bytes", "workspace_bytes")
    stages, edges = [], []
    for _ in plan.stages:
        forward, backward_input, weight = (rng.uniform(0.5, 2.0) for _ in range(3))
        times = {"forward_s": forward, "backward_input_s": backward_input, "backward_weight_s": weight}
        stages.append({**times, "backward_s": backward_input + weight - 0.1, **dict.fromkeys(sizes, 0)})
    bounds = [stage.layers for stage in plan.stages]
    for a, b in stage_edges(bounds, skips):
        if plan.stages[a].rank != plan.stages[b].rank:
            busy, latency = ([rng.uniform(0, 0.5), rng.uniform(0, 0.5)] for _ in range(2))
            edges.append({"from": a, "to": b, "bytes": 1, "transfer_s": busy, "latency_s": latency})
    ranks = [{"busy_s": 0, "peak_bytes": 0, "state_bytes": 0}] * plan.num_ranks
    document["predicted"] = {**document["predicted"], "stages": stages, "edges": edges, "ranks": ranks}
    return Plan.from_document(document)


def random_costed_plan(seed: int) -> Plan:
    rng = random.Random(seed)
    num_layers = rng.randint(4, 9)
    skips = [(0, 3)] if seed % 2 else []
    return costed(plans.random_plan(rng, num_layers, rng.randint(1, 4), skips), rng, skips)


@pytest.mark.parametrize("seed", range(30))
def test_the_prediction_is_the_simulators(seed):
    plan = random_costed_plan(seed)
    simulation = octoplan.simulate(plan)
    ops = predicted_ops(plan, EmulatedCosts.of(plan, 1.0))
    expected = [(rank, f"{s}{kind}{m}", start, end) for rank, s, kind, m, start, end in op_times(simulation)]
    expected += [(rank, word, start, end) for rank, _, word, start, end in transfer_times(simulation)]
    expected, found = sorted(expected), sorted(ops)
    assert [op[:2] for op in found] == [op[:2] for op in expected]
    np.testing.assert_allclose([op[2:] for op in found], [op[2:] for op in expected], rtol=1e-12, atol=1e-12)
    assert makespan_s(ops) == pytest.approx(simulation.makespan_s, rel=1e-12)


def test_scale_and_the_machines_own_costs():
    plan = random_costed_plan(4)
    once, twice = EmulatedCosts.of(plan, 1.0), EmulatedCosts.of(plan, 2.0)
    one, two = (makespan_s(predicted_ops(plan, costs)) for costs in (once, twice))
    assert two == pytest.approx(2 * one)
    slower = twice.on(MachineCosts(0.25, 0.5))
    assert slower.ops[0]["F"] == pytest.approx(twice.ops[0]["F"] + 0.25)
    ends, (busy, latency) = next(iter(twice.transfers.items()))
    assert slower.transfers[ends] == pytest.approx((busy, latency + 0.5))


def test_automatic_scale_makes_the_mean_op_50_ms():
    plan = random_costed_plan(7)
    ops = predicted_ops(plan, EmulatedCosts.of(plan, None))
    durations = [end - start for _, word, start, end in ops if "SEND" not in word]
    assert sum(durations) / len(durations) == pytest.approx(0.05)


def test_a_plan_without_costs_cannot_be_emulated():
    plan = plans.random_plan(random.Random(0), 4, 2)
    with pytest.raises(InputError, match="does not record what its stages cost"):
        EmulatedCosts.of(plan, 1.0)


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_the_calibrations_plan_is_valid(num_ranks):
    assert check_plan(calibration_plan(num_ranks)) == []


def test_a_calibration_reads_the_costs_that_the_starts_were_made_from():
    sleeps, op_s, latency_s = [0.01, 0.005, 0.005], 0.0004, 0.0003
    forwards = [[m * (sleeps[0] + op_s) for m in range(6)]]
    for before in range(2):
        forwards.append([start + sleeps[before] + op_s + latency_s for start in forwards[before]])
    backwards = [[1.0 + m * (sleeps[2] + op_s) for m in range(6)]] * 3
    found = machine_costs(list(zip(forwards, backwards, strict=True)), sleeps)
    assert (found.op_overhead_s, found.latency_s) == pytest.approx((op_s, latency_s))


def test_the_emulated_layers_have_the_skip_edges_of_the_programs():
    rng = random.Random(1)
    bounds = [(0, 2), (2, 3), (3, 5)]
    skips = [(0, 4)]
    order = plans.random_order(rng, bounds, 2, skips, 0.5)
    plan = plans.make_plan(bounds, [0, 1, 2], order, 2, skips)
    assert emulated_workload(plan).skips == ((1, 3),)
