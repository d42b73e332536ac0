"""List scheduling on random problems: it never dead-ends, and keeps to every limit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.ordering import one_microbatch_at_a_time, run_order
from octoplan_solvers.list_scheduling import (
    ListScheduler,
    MemoryTooSmallError,
    Policy,
    PolicyRule,
    best_of_portfolio,
    improve_policy,
    portfolio,
)
from octoplan_solvers.order import Order
from octoplan_solvers.staged import StagedProblem
from tests.random_policies import random_policy
from tests.random_problems import numpy_random, random_job
from tests.solvers.list_scheduling.problems import chain

seeds = st.integers(0, 2**32)


def random_staged(random: Random, *, without_tensors: bool = False) -> StagedProblem:
    """Draw a staged problem; tensors without bytes make the scheduler's view of memory the exact one."""
    job = random_job(random, max_stages_per_rank=4, max_microbatches=8)
    staged = job.staged(split_backward=random.random() < 0.7)
    if not without_tensors:
        return staged
    return replace(
        staged, edge_bytes=np.zeros_like(staged.edge_bytes), transfer_s=np.zeros_like(staged.transfer_s)
    )


def serial_need_bytes(staged: StagedProblem) -> list[float]:
    """Return what each rank needs while one microbatch walks from op to op, backwards fused.

    A tensor takes room at the receiver from the start of the op that makes it.
    """
    ranks = staged.stage_rank.tolist()
    edges = [
        (source, destination, size)
        for source, destination, size, crosses in zip(
            staged.edge_source.tolist(),
            staged.edge_destination.tolist(),
            staged.edge_bytes.tolist(),
            staged.edge_crosses.tolist(),
            strict=True,
        )
        if crosses
    ]
    held = staged.state_bytes.tolist()
    need = list(held)

    def note(running: int | None = None, extra: float = 0.0) -> None:
        for rank, size in enumerate(held):
            need[rank] = max(need[rank], size + (extra if rank == running else 0.0))

    stages = range(staged.num_stages)
    for stage, is_forward in [
        *((stage, True) for stage in stages),
        *((stage, False) for stage in stages[::-1]),
    ]:
        rank = ranks[stage]
        for source, destination, size in edges:
            receiver, sender = (destination, source) if is_forward else (source, destination)
            if receiver == stage:
                held[rank] -= size
            if sender == stage:
                held[ranks[receiver]] += size
        if is_forward:
            held[rank] += staged.activation_bytes[stage]
        note(rank, staged.workspace_bytes[stage])
        if not is_forward:
            held[rank] -= staged.activation_bytes[stage]
    return need


def is_complete(staged: StagedProblem, order: Order) -> bool:
    """True if every stage and microbatch has F and either B, or I and W, on the rank of the stage."""
    found: dict[tuple[int, int], str] = {}
    for rank, ops in enumerate(order.to_lists()):
        for stage, kind, microbatch in ops:
            assert staged.stage_rank[stage] == rank
            found[stage, microbatch] = found.get((stage, microbatch), "") + kind
    allowed = {"FB", "FIW"} if staged.split_backward else {"FB"}
    return len(found) == staged.num_stages * staged.num_microbatches and set(found.values()) <= allowed


@settings(deadline=None, max_examples=600)
@given(seeds)
def test_every_policy_leads_to_a_complete_order_within_memory(seed: int) -> None:
    """Under limits from exactly one microbatch at a time upwards; exact where no tensors take room."""
    random = Random(seed)
    staged = random_staged(random, without_tensors=random.random() < 0.5)
    need = np.array(serial_need_bytes(staged))
    more = random.choice([0.0, 0.0, 0.1, 0.5, 1.0])
    limits = need + more * random.random() * (need - staged.state_bytes)
    staged = staged.with_limit(limits)
    policy = random_policy(staged, numpy_random(random))
    schedule = ListScheduler(staged).schedule(policy)
    assert is_complete(staged, schedule.order)
    ordered = run_order(staged, schedule.order)
    assert ordered.makespan_s <= schedule.makespan_s * (1 + 1e-6) + 1e-6
    if not staged.edge_bytes.any():
        assert not ordered.excess_bytes().any()


@settings(deadline=None, max_examples=300)
@given(seeds)
def test_too_small_exactly_if_one_microbatch_alone_does_not_fit(seed: int) -> None:
    random = Random(seed)
    staged = random_staged(random, without_tensors=random.random() < 0.5)
    need = np.array(serial_need_bytes(staged))
    ListScheduler(staged.with_limit(need))
    alone = run_order(staged, one_microbatch_at_a_time(staged)).simulation.memory.peak_bytes
    assert (alone <= need + 1e-9).all()
    # An op of no time has no workspace, and a tensor may be used as soon as it arrives.
    if not staged.edge_bytes.any() and (staged.duration_s > 0).all():
        np.testing.assert_allclose(alone, need)
    rank = random.randrange(staged.num_ranks)
    if need[rank] == 0:
        return
    limits = need.copy()
    limits[rank] *= 0.75
    with pytest.raises(MemoryTooSmallError) as caught:
        ListScheduler(staged.with_limit(limits))
    assert caught.value.rank == rank
    assert caught.value.short_bytes == pytest.approx(0.25 * need[rank])
    assert f"rank {rank} needs {need[rank]:,.0f} bytes" in str(caught.value)


@settings(deadline=None, max_examples=300)
@given(seeds)
def test_makespan_is_that_of_the_exact_simulation(seed: int) -> None:
    """Without limits and without waiting on purpose."""
    random = Random(seed)
    staged = random_staged(random)
    policy = replace(random_policy(staged, numpy_random(random)), patience=(0.0, 0.0, 0.0))
    policy = replace(policy, max_in_flight=np.full(staged.num_stages, staged.num_microbatches))
    schedule = ListScheduler(staged).schedule(policy)
    assert schedule.makespan_s == pytest.approx(run_order(staged, schedule.order).makespan_s, rel=1e-6)
    makespan = ListScheduler(staged).makespan
    assert makespan(policy) == schedule.makespan_s
    assert makespan(policy, give_up_s=schedule.makespan_s) == schedule.makespan_s
    if schedule.makespan_s > 0:
        assert makespan(policy, give_up_s=schedule.makespan_s * 0.99) == float("inf")


PLACEMENTS = {
    "six loops": [*range(4)] * 6,
    "three zigzags": [*range(4), *range(3, -1, -1)] * 3,
    "blocks": sorted([*range(4)] * 6),
    "unequal": [0] * 9 + [1, 2, 3] * 5,
}


@pytest.mark.parametrize("ranks", PLACEMENTS.values(), ids=PLACEMENTS.keys())
@pytest.mark.parametrize("more", [0.0, 0.05, 0.4])
def test_many_stages_per_rank(ranks: list[int], more: float) -> None:
    random = np.random.default_rng(len(ranks) + int(100 * more))
    staged = chain(
        random.uniform(0.5, 2.0, 24),
        random.uniform(0.1, 2.0, 24),
        ranks,
        12,
        latency_s=0.05,
        weight_stash_bytes=random.uniform(0.0, 0.5, 24),
        workspace_bytes=random.uniform(0.0, 2.0, 24),
    )
    limits = np.array(serial_need_bytes(staged)) * (1 + more)
    staged = staged.with_limit(limits)
    scheduler = ListScheduler(staged)
    for rule in portfolio(staged):
        ordered = run_order(staged, scheduler.schedule(rule.on(staged)).order)
        assert is_complete(staged, ordered.replay.schedule.order)
        assert not ordered.excess_bytes().any()
    for _ in range(20):
        ordered = run_order(staged, scheduler.schedule(random_policy(staged, random)).order)
        assert not ordered.excess_bytes().any()


@settings(deadline=None, max_examples=150)
@given(seeds)
def test_microbatches_in_flight_are_limited(seed: int) -> None:
    """Per stage by the policy, from F to the end of the backward; per rank by the job, until the last W."""
    random = Random(seed)
    staged = random_staged(random)
    most = np.array([random.randint(1, staged.num_microbatches) for _ in range(staged.num_ranks)])
    policy = random_policy(staged, numpy_random(random))
    order = ListScheduler(staged, most).schedule(policy).order
    assert is_complete(staged, order)
    for rank, ops in enumerate(order.to_lists()):
        stages = np.flatnonzero(staged.stage_rank == rank).tolist()
        left = {microbatch: len(stages) for microbatch in range(staged.num_microbatches)}
        started: set[int] = set()
        in_flight = dict.fromkeys(stages, 0)
        for stage, kind, microbatch in ops:
            if kind == "F":
                started.add(microbatch)
                in_flight[stage] += 1
                assert in_flight[stage] <= policy.max_in_flight[stage]
            if kind in "IB":
                in_flight[stage] -= 1
            if kind in "WB":
                left[microbatch] -= 1
            # Here a microbatch counts from its first F on the rank to the last op that frees its activations.
            assert len([m for m in started if left[m] > 0]) <= most[rank]


def test_the_same_seed_gives_the_same_order() -> None:
    staged = random_staged(Random(7))
    policies = [improve_policy(ListScheduler(staged), evaluations=60, seed=3) for _ in range(2)]
    assert policies[0][1] == policies[1][1]
    orders = [ListScheduler(staged).schedule(policy).order for policy, _ in policies]
    np.testing.assert_array_equal(orders[0].ops, orders[1].ops)
    assert best_of_portfolio(ListScheduler(staged)) == best_of_portfolio(ListScheduler(staged))


def test_a_search_never_loses_what_it_started_from() -> None:
    for seed in range(10):
        staged = random_staged(Random(seed))
        scheduler = ListScheduler(staged)
        _, started = best_of_portfolio(scheduler)
        policy, improved = improve_policy(scheduler, evaluations=40, seed=seed)
        assert improved <= started
        assert scheduler.makespan(policy) == improved
        _, stopped = improve_policy(scheduler, evaluations=40, should_stop=lambda: True)
        assert stopped == best_of_portfolio(scheduler, should_stop=lambda: True)[1]


def one_rank(rule: PolicyRule, room: float = float("inf"), **sizes: float) -> str:
    """Return the ops of two microbatches on one stage."""
    staged = chain([1.0], [1.0], [0], 2, room=room, **{name: [size] for name, size in sizes.items()})
    (ops,) = ListScheduler(staged).schedule(rule.on(staged)).order.to_lists()
    return " ".join(f"{kind}{microbatch}" for _, kind, microbatch in ops)


def test_keys_decide_what_an_idle_rank_runs() -> None:
    assert one_rank(PolicyRule(urgency=0.0, backward_first=-5)) == "F0 F1 I0 I1 W0 W1"
    assert one_rank(PolicyRule(urgency=0.0, backward_first=5)) == "F0 I0 F1 I1 W0 W1"
    assert one_rank(PolicyRule(urgency=0.0, weight_delay=-5)) == "F0 I0 W0 F1 I1 W1"
    assert one_rank(PolicyRule(urgency=0.0, backward_first=-5, alternate=20)) == "F0 I0 F1 I1 W0 W1"


def test_weight_backwards_go_first_where_memory_demands_it() -> None:
    assert one_rank(PolicyRule(urgency=0.0, backward_first=-5), room=1) == "F0 I0 W0 F1 I1 W1"
    assert one_rank(PolicyRule(urgency=0.0, backward_first=-5), room=2) == "F0 F1 I0 I1 W0 W1"


def test_backwards_are_fused_where_the_stash_does_not_fit() -> None:
    rule = PolicyRule(urgency=0.0, backward_first=-5)
    assert one_rank(rule, room=1, weight_stash_bytes=0.5) == "F0 B0 F1 B1"
    assert one_rank(rule, room=1.5, weight_stash_bytes=0.5) == "F0 I0 W0 F1 I1 W1"


def test_a_rank_waits_for_a_better_op_only_if_its_arrival_is_known_and_near() -> None:
    """Rank 1 has W0 to do, 4 s long, when the input of F1 comes in 0.6 s."""
    staged = chain([1.0, 0.2], [4.0, 4.0], [0, 1], 2, latency_s=1.5)
    eager = PolicyRule(urgency=0.0, backward_first=5, wait=0.0).on(staged)

    def second_rank(policy: Policy) -> str:
        ops = ListScheduler(staged).schedule(policy).order.to_lists()[1]
        return " ".join(f"{kind}{microbatch}" for _, kind, microbatch in ops)

    assert second_rank(eager) == "F0 I0 W0 F1 I1 W1"
    assert second_rank(replace(eager, patience=(0.0, 0.0, 0.1))) == "F0 I0 W0 F1 I1 W1"
    assert second_rank(replace(eager, patience=(0.0, 0.0, 0.2))) == "F0 I0 F1 I1 W0 W1"
