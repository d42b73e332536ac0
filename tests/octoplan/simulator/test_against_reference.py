"""The fast simulator against the slow one that was written from the contract alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.lowering import lower, read_schedule
from octoplan.simulator import replay, simulate_schedule
from octoplan_schemas import check_plan
from tests import reference_simulator
from tests.octoplan.simulator.cases import SimulatedCase, random_case
from tests.random_problems import plan_of
from tests.reference_simulator import ReferenceResult

seeds = st.integers(0, 2**32)


def assert_same(case: SimulatedCase, expected: ReferenceResult) -> None:
    """Compare everything that both compute; to the bit where all numbers of the job are exact in floats."""
    simulation, memory = case.simulation, case.simulation.memory
    tolerance = 0.0 if case.job.is_exact else 1e-9

    def same(found: object, reference: object) -> None:
        np.testing.assert_allclose(
            np.array(found), np.array(reference), rtol=tolerance, atol=tolerance, verbose=True
        )

    assert sorted(case.op_keys) == sorted(expected.ops)
    assert sorted(case.message_keys) == sorted(expected.transfers)
    same(np.stack([simulation.start_s, simulation.end_s], axis=1), [expected.ops[op] for op in case.op_keys])
    if case.message_keys:
        same(
            np.stack([simulation.message_start_s, simulation.message_arrival_s], axis=1),
            [expected.transfers[message] for message in case.message_keys],
        )
    same(simulation.makespan_s, expected.makespan_s)
    same(simulation.busy_s, expected.busy_s)
    same(memory.peak_bytes, expected.peak_bytes)
    same(memory.peak_at_s, expected.peak_at_s)
    total = len(expected.busy_s) * expected.makespan_s
    assert simulation.bubble_fraction == pytest.approx(1 - sum(expected.busy_s) / total if total else 0.0)


@settings(deadline=None, max_examples=2000)
@given(seeds)
def test_times_and_memory_of_random_plans(seed: int) -> None:
    case = random_case(seed)
    assert_same(case, reference_simulator.simulate(case.plan, case.job.model, case.job.cluster))


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_times_and_memory_of_larger_plans(seed: int) -> None:
    case = random_case(seed, max_ranks=7, max_stages_per_rank=4, max_microbatches=9)
    assert_same(case, reference_simulator.simulate(case.plan, case.job.model, case.job.cluster))


@settings(deadline=None, max_examples=300)
@given(seeds)
def test_memory_curves_of_random_plans(seed: int) -> None:
    """The curves agree at every moment (each may have steps of zero height), and their maximum is the peak."""
    case = random_case(seed)
    expected = reference_simulator.simulate(case.plan, case.job.model, case.job.cluster)
    for rank, (times, values) in enumerate(case.simulation.memory_curves()):
        assert (np.diff(times) >= 0).all()
        assert values.max() == pytest.approx(case.simulation.memory.peak_bytes[rank], abs=1e-9)
        for moment in _between([*times.tolist(), *(time for time, _ in expected.memory[rank])]):
            reference = [size for time, size in expected.memory[rank] if time <= moment]
            found = values[np.searchsorted(times, moment, side="right") - 1]
            assert found == pytest.approx(reference[-1], abs=1e-9)


def _between(times: list[float]) -> list[float]:
    """Return the middles of all intervals that are longer than rounding errors."""
    pairs = pairwise(sorted(times))
    return [(first + second) / 2 for first, second in pairs if second - first > 1e-9]


@settings(deadline=None, max_examples=300)
@given(seeds)
def test_lowered_orders_are_valid_plans_that_simulate_the_same(seed: int) -> None:
    """From orders alone: transfers go when they are ready, and the plan read back gives the same simulation."""
    case = random_case(seed)
    replayed = replay(case.job.staged(), case.simulation.schedule.order)
    direct = simulate_schedule(replayed.schedule)
    plan = plan_of(case.job, lower(replayed))
    assert check_plan(plan, case.job.edges) == []
    again = simulate_schedule(read_schedule(plan, case.job.staged()))
    for name in ("start_s", "end_s", "message_start_s", "message_arrival_s"):
        np.testing.assert_array_equal(getattr(again, name), getattr(direct, name))
    np.testing.assert_array_equal(again.schedule.messages, direct.schedule.messages)
    np.testing.assert_array_equal(again.memory.peak_bytes, direct.memory.peak_bytes)
    lowered = SimulatedCase(case.job, plan, again)
    assert_same(lowered, reference_simulator.simulate(plan, case.job.model, case.job.cluster))
    ready = dict(zip(lowered.op_keys, again.end_s.tolist(), strict=True))
    for pair in np.split(np.arange(len(again.schedule.messages)), again.schedule.pair_begin[1:-1]):
        produced = [_producer_end(ready, lowered.message_keys[index]) for index in pair.tolist()]
        assert produced == sorted(produced)


def _producer_end(ends: dict[tuple[int, str, int], float], message: tuple[int, int, int]) -> float:
    source, destination, microbatch = message
    if source < destination:
        return ends[source, "F", microbatch]
    fused = ends.get((source, "B", microbatch))
    return ends[source, "I", microbatch] if fused is None else fused


def test_random_plans_are_varied() -> None:
    """The tests above would be hollow if their plans were all alike."""
    cases = [random_case(seed) for seed in range(150)]
    kinds = {frozenset(kind for _, kind, _ in case.op_keys) for case in cases}
    assert {frozenset("FB"), frozenset("FIW"), frozenset("FIWB")} <= kinds
    ranks = [case.job.assignment.ranks for case in cases]
    assert any(one == other for case in ranks for one, other in pairwise(case))
    assert any(len({case.count(rank) for rank in case}) > 1 for case in ranks)
    assert any(case.job.model.skips for case in cases)
    assert any(case.job.cluster.links.pairs for case in cases)
    assert any(len({device.type for device in case.job.cluster.devices}) > 1 for case in cases)
    starts = [case.simulation.message_start_s for case in cases]
    queues = [case.simulation.binding[-len(start) :] for case, start in zip(cases, starts, strict=True)]
    num_ops = [len(case.simulation.start_s) for case in cases]
    assert any((queue >= count).any() for queue, count in zip(queues, num_ops, strict=True))
    assert all(check_plan(case.plan, case.job.edges) == [] for case in cases)
