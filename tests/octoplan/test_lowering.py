"""From orders to programs of op words, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.lowering import lower, read_schedule
from octoplan.simulator import replay
from octoplan_schemas import InputError, ProgramIndex, check_plan, parse_word
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment
from tests import reference_simulator
from tests.builders import make_cluster, uniform_model
from tests.octoplan.simulator.cases import random_case
from tests.random_problems import RandomJob, plan_of

seeds = st.integers(0, 2**32)


@settings(deadline=None, max_examples=200)
@given(seeds)
def test_reading_keeps_every_order_of_the_programs(seed: int) -> None:
    """Also where messages of a rank pair leave in another order than their producers end."""
    case = random_case(seed)
    schedule = case.simulation.schedule
    ranks = case.job.assignment.ranks
    sent: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for rank, program in enumerate(case.plan.programs):
        words = [parse_word(word) for word in program]
        own = slice(schedule.order.rank_begin[rank], schedule.order.rank_begin[rank + 1])
        assert case.op_keys[own] == [tuple(word[:3]) for word in words if word.is_compute]
        for word in words:
            if word.is_send:
                pair = ranks[word.stage], ranks[word.other_stage]
                sent.setdefault(pair, []).append((word.stage, word.other_stage, word.microbatch))
    staged = schedule.staged
    assert {tuple(pair) for pair in staged.pairs.tolist()} == sent.keys()
    for number, pair in enumerate(staged.pairs.tolist()):
        own = slice(schedule.pair_begin[number], schedule.pair_begin[number + 1])
        assert case.message_keys[own] == sent[tuple(pair)]


@settings(deadline=None, max_examples=150)
@given(seeds)
def test_a_message_stands_right_behind_its_producer(seed: int) -> None:
    case = random_case(seed)
    programs = lower(replay(case.job.staged(), case.simulation.schedule.order))
    for program in programs:
        producer = None
        for text in program:
            word = parse_word(text)
            if word.is_send:
                kinds = "F" if word.kind == "SEND_F" else "IB"
                assert producer is not None
                assert producer[0] == word.stage
                assert producer[1] in kinds
                assert producer[2] == word.microbatch
            else:
                producer = word[:3] if word.is_compute else None


def test_lowering_twice_gives_the_same_words() -> None:
    for seed in range(20):
        case = random_case(seed)
        order = case.simulation.schedule.order
        assert lower(replay(case.job.staged(), order)) == lower(replay(case.job.staged(), order))


def test_a_parsed_index_is_taken_over() -> None:
    case = random_case(3)
    index = ProgramIndex.of(case.plan)
    taken = read_schedule(case.plan, case.job.staged(), index)
    np.testing.assert_array_equal(taken.order.ops, case.simulation.schedule.order.ops)
    np.testing.assert_array_equal(taken.messages, case.simulation.schedule.messages)


def test_messages_that_the_model_does_not_have_are_refused() -> None:
    """A plan for a model with a skip, read for the same stages without it."""
    for seed in range(1000):
        case = random_case(seed)
        ranks = case.job.assignment.ranks
        far = [edge for edge in case.job.edges if edge[1] - edge[0] > 1 and ranks[edge[0]] != ranks[edge[1]]]
        if far:
            break
    bare = replace(case.job, model=case.job.model.model_copy(update={"skips": ()}))
    with pytest.raises(InputError, match=r"stage \d+ sends to stage \d+, but the model has no such edge"):
        read_schedule(case.plan, bare.staged())


@settings(deadline=None, max_examples=50)
@given(seeds)
def test_replay_is_a_linear_extension(seed: int) -> None:
    """Ops stand in the global order by end time, each rank's in its own order; every message exactly once."""
    case = random_case(seed)
    staged, order = case.job.staged(), case.simulation.schedule.order
    replayed = replay(staged, order)
    assert sorted(replayed.global_order.tolist()) == list(range(len(order.ops)))
    assert sorted(replayed.message_order.tolist()) == sorted(case.simulation.schedule.messages.tolist())
    place = np.argsort(replayed.global_order)
    for rank in range(order.num_ranks):
        own = place[order.rank_begin[rank] : order.rank_begin[rank + 1]]
        assert (np.diff(own) > 0).all()
    again = plan_of(case.job, lower(replayed))
    assert [sorted(program) for program in again.programs] == [
        sorted(program) for program in case.plan.programs
    ]


@settings(deadline=None, max_examples=150)
@given(seeds)
def test_a_given_order_of_messages_is_kept(seed: int) -> None:
    """A message may leave behind an op of another microbatch or stage: its words name itself all the same."""
    case = random_case(seed)
    schedule = case.simulation.schedule
    replayed = replay(case.job.staged(), replace(schedule.order, messages=schedule.messages))
    plan = plan_of(case.job, lower(replayed))
    assert check_plan(plan, case.job.edges) == []
    again = read_schedule(plan, case.job.staged())
    np.testing.assert_array_equal(again.order.ops, schedule.order.ops)
    np.testing.assert_array_equal(again.messages, schedule.messages)
    result = reference_simulator.simulate(plan, case.job.model, case.job.cluster)
    assert result.makespan_s == pytest.approx(case.simulation.makespan_s, rel=1e-12, abs=1e-12)


def test_a_message_may_wait_for_an_op_of_another_microbatch() -> None:
    """Microbatch 1 goes first: that of microbatch 0 stands behind F of microbatch 1, too."""
    job = RandomJob(
        uniform_model(2), make_cluster(2), Assignment.from_sizes([1, 1], [0, 1]), 2, is_exact=True
    )
    ops = [
        [(0, "F", 0), (0, "F", 1), (0, "B", 1), (0, "B", 0)],
        [(1, "F", 1), (1, "B", 1), (1, "F", 0), (1, "B", 0)],
    ]
    order = replace(Order.from_lists(ops, 2), messages=np.array([1, 0, 3, 2]))
    assert lower(replay(job.staged(), order)) == (
        ("0F0", "0F1", "0SEND_F1", "0SEND_F0", "0RECV_B1", "0B1", "0RECV_B0", "0B0"),
        ("1RECV_F1", "1RECV_F0", "1F1", "1B1", "1SEND_B1", "1F0", "1B0", "1SEND_B0"),
    )
