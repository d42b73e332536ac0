"""From a policy to an order that fits: also where received tensors come early."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.lowering import lower, read_schedule
from octoplan.ordering import excess_bytes, one_microbatch_at_a_time, order_by_policy, run_order
from octoplan.simulator import simulate_schedule
from octoplan_schemas import check_plan
from octoplan_solvers.list_scheduling import ListScheduler
from tests import reference_simulator
from tests.random_policies import random_policy
from tests.random_problems import numpy_random, plan_of, random_job

seeds = st.integers(0, 2**32)


def room_for_one_microbatch(scheduler: ListScheduler, random: Random) -> np.ndarray:
    """Return limits from what one microbatch at a time needs, exactly, up to several times that."""
    more = random.choice([0.0, 0.0, 0.1, 0.5, 1.0, 3.0])
    factors = [1.0 + more * random.random() for _ in range(scheduler.staged.num_ranks)]
    return scheduler.staged.state_bytes + scheduler.future[:, 0] * np.array(factors)


@settings(deadline=None, max_examples=500)
@given(seeds)
def test_every_policy_leads_to_an_order_that_fits(seed: int) -> None:
    """The whole way: list scheduling, repair, lowering, and the slow simulator as the judge of memory."""
    random = Random(seed)
    job = random_job(random, max_microbatches=6)
    staged = job.staged(split_backward=random.random() < 0.7)
    limits = room_for_one_microbatch(ListScheduler(staged), random)
    scheduler = ListScheduler(staged.with_limit(limits))
    ordered = order_by_policy(scheduler, random_policy(staged, numpy_random(random)))
    plan = plan_of(job, lower(ordered.replay))
    assert check_plan(plan, job.edges) == []
    expected = reference_simulator.simulate(plan, job.model, job.cluster)
    assert (np.array(expected.peak_bytes) <= limits * (1 + 1e-9) + 1e-9).all()
    assert ordered.makespan_s == pytest.approx(expected.makespan_s)
    assert not ordered.excess_bytes().any()


@settings(deadline=None, max_examples=200)
@given(seeds)
def test_one_microbatch_at_a_time_is_one_chain_within_what_the_scheduler_insists_on(seed: int) -> None:
    random = Random(seed)
    job = random_job(random)
    staged = job.staged()
    ordered = run_order(staged, one_microbatch_at_a_time(staged))
    assert check_plan(plan_of(job, lower(ordered.replay)), job.edges) == []
    start, end = (np.sort(times) for times in (ordered.simulation.start_s, ordered.simulation.end_s))
    assert (start[1:] >= end[:-1] - 1e-9).all()
    needed = staged.state_bytes + ListScheduler(staged).future[:, 0]
    assert (ordered.simulation.memory.peak_bytes <= needed + 1e-9).all()


def test_excess_is_zero_within_rounding_and_without_a_limit() -> None:
    job = random_job(Random(5), is_exact=True)
    staged = job.staged()
    order = one_microbatch_at_a_time(staged)
    peak = run_order(staged, order).simulation.memory.peak_bytes
    assert peak.min() > 1
    assert (excess_bytes(run_order(staged, order).simulation) == 0).all()
    for limit, excess in ((peak, 0.0), (peak * (1 - 1e-14), 0.0), (peak - 1, 1.0)):
        found = excess_bytes(run_order(staged.with_limit(limit), order).simulation)
        np.testing.assert_allclose(found, excess)


def test_a_tensor_that_comes_early_is_made_up_for() -> None:
    """Orders that the scheduler believes to fit, but that do not: the repair is not idle."""
    num_repaired = 0
    for seed in range(300):
        random = Random(seed)
        job = random_job(random, max_microbatches=6)
        staged = job.staged()
        scheduler = ListScheduler(staged.with_limit(room_for_one_microbatch(ListScheduler(staged), random)))
        policy = random_policy(staged, numpy_random(random))
        first = run_order(scheduler.staged, scheduler.schedule(policy).order)
        repaired = order_by_policy(scheduler, policy)
        assert not repaired.excess_bytes().any()
        if first.excess_bytes().any():
            num_repaired += 1
        else:
            assert lower(repaired.replay) == lower(first.replay)
    assert num_repaired > 5


def test_reading_back_what_was_ordered_changes_nothing() -> None:
    for seed in range(30):
        random = Random(seed)
        job = random_job(random)
        staged = job.staged()
        ordered = order_by_policy(ListScheduler(staged), random_policy(staged, numpy_random(random)))
        plan = plan_of(job, lower(ordered.replay))
        again = simulate_schedule(read_schedule(plan, staged))
        assert again.makespan_s == ordered.makespan_s
        np.testing.assert_array_equal(again.memory.peak_bytes, ordered.simulation.memory.peak_bytes)


def test_fused_policies_give_fused_plans() -> None:
    job = random_job(Random(2))
    staged = job.staged()
    policy = random_policy(staged, np.random.default_rng(0))
    ordered = order_by_policy(ListScheduler(staged), replace(policy, fuse=np.ones_like(policy.fuse)))
    assert not [word for program in lower(ordered.replay) for word in program if "W" in word or "I" in word]
