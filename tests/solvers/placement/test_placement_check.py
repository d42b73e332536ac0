"""The independent check and the bound of an assignment, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan_solvers.brute_force import all_assignments
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.list_scheduling import ListScheduler, PolicyRule
from octoplan_solvers.placement_check import assignment_bound, check_assignment, surely_held_bytes
from octoplan_solvers.problem import Assignment
from octoplan_solvers.staged import build_staged
from tests.solvers.placement.problems import make_problem

TWO_STAGES = Assignment.from_sizes([2, 2], [0, 1])


def test_split_backward_by_hand() -> None:
    # F 0.3, I 0.4, W 0.3 of each second; one latency of 0.05 between the ranks; overhead of 0.01 for every op.
    problem = make_problem((1.0, 2.0, 3.0, 1.0), 2, microbatches=5, latency_s=0.05, overhead_s=0.01)
    head = 0.3 * 3 + 0.05 + 0.01
    tail = 0.4 * 3 + 0.05 + 0.01 + 0.3
    second = head + 5 * (0.02 + 0.7 * 4) + max(5 * 0.3 * 4, tail)
    assert assignment_bound(problem, TWO_STAGES) == pytest.approx(second)


def test_few_microbatches_leave_the_tail_longer_than_the_weights() -> None:
    problem = make_problem((9.0, 1.0, 1.0, 1.0), 2, microbatches=1)
    # The second rank, head 3, F and I of 2 seconds, tail 4 and W of layer 0; the first has more to do.
    assert assignment_bound(problem, TWO_STAGES) == pytest.approx(max(3 + 1.4 + 4 + 2.7, 10.0))


def test_fused_backward_by_hand() -> None:
    problem = make_problem((1.0, 2.0, 3.0, 1.0), 2, microbatches=5, split=False)
    assert assignment_bound(problem, TWO_STAGES) == pytest.approx(0.3 * 3 + 5 * 4 + 0.7 * 3)


def test_one_microbatch_goes_there_and_back() -> None:
    problem = make_problem(
        (1.0, 1.0, 1.0), 3, microbatches=1, output=(6.0, 2.0, 0.0), bandwidth=4.0, latency_s=0.1
    )
    chain = Assignment.from_sizes([1, 1, 1], [0, 1, 2])
    assert assignment_bound(problem, chain) == pytest.approx(0.7 * 3 + 0.3 + 2 * (1.5 + 0.1 + 0.5 + 0.1))


def test_a_slow_skip_is_a_path_of_its_own() -> None:
    problem = make_problem((1.0, 1.0, 1.0), 2, microbatches=1, skips=[(0, 2, 100.0)], bandwidth=10.0)
    apart, joined = Assignment.from_sizes([2, 1], [0, 1]), Assignment.from_sizes([1, 1, 1], [0, 1, 0])
    assert assignment_bound(problem, apart) == pytest.approx(0.7 * 2 + 0.3 + 2 * 10.0)
    assert assignment_bound(replace(problem, max_stages_per_rank=2), joined) < 4


def test_device_types_count_where_the_layers_are() -> None:
    problem = make_problem(((1.0, 1.0), (5.0, 5.0)), 2, rank_type=(1, 0), microbatches=2)
    slow_first = Assignment.from_sizes([1, 1], [0, 1])
    # The slow rank: 10 of work; the fast one waits 1.5 and works 2.
    assert assignment_bound(problem, slow_first) == pytest.approx(2 * 5.0)
    slow_last = Assignment.from_sizes([1, 1], [1, 0])
    assert assignment_bound(problem, slow_last) == pytest.approx(0.3 + 2 * 5.0)


def test_cuts_on_one_rank_cost_overhead_only() -> None:
    problem = make_problem((1.0, 1.0, 1.0), 2, microbatches=4, overhead_s=0.1, max_stages=2, latency_s=1.0)
    joined = assignment_bound(problem, Assignment.from_sizes([2, 1], [0, 1]))
    cut = assignment_bound(problem, Assignment.from_sizes([1, 1, 1], [0, 0, 1]))
    assert joined <= cut <= joined + 4 * 2 * 0.1 + 1e-12


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_list_schedule_is_shorter(data: st.DataObject) -> None:
    times = data.draw(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=5))
    num_ranks = data.draw(st.integers(1, 3))
    problem = make_problem(
        (times, times[::-1]),
        num_ranks,
        rank_type=[rank % 2 for rank in range(num_ranks)],
        microbatches=data.draw(st.integers(1, 4)),
        split=data.draw(st.booleans()),
        max_stages=2,
        overhead_s=data.draw(st.sampled_from([0.0, 0.05])),
        output=data.draw(st.sampled_from([0.0, 1.0])),
        bandwidth=5.0,
        latency_s=data.draw(st.sampled_from([0.0, 0.1])),
        skips=[(0, 2, 3.0)],
    )
    assignment = data.draw(st.sampled_from(list(all_assignments(problem))))
    staged = build_staged(problem, assignment)
    rule = PolicyRule(urgency=data.draw(st.floats(-1, 2)), backward_first=data.draw(st.floats(-2, 2)))
    makespan = ListScheduler(staged).makespan(rule.on(staged))
    assert assignment_bound(problem, assignment) <= makespan * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        (Assignment(((0, 2), (3, 4)), (0, 1)), "do not cover 4 layers"),
        (Assignment(((0, 2), (2, 3)), (0, 1)), "do not cover 4 layers"),
        (Assignment(((0, 2), (2, 2), (2, 4)), (0, 1, 1)), "is empty"),
        (Assignment(((0, 2), (2, 4)), (0, 2)), "not all below 2"),
        (Assignment(((0, 2), (2, 4)), (0,)), "2 stages, but 1 ranks"),
        (Assignment(((0, 4),), (0,)), "rank 1 holds 0 stages, not 1 to 1"),
        (Assignment(((0, 1), (1, 3), (3, 4)), (0, 1, 0)), "rank 0 holds 2 stages, not 1 to 1"),
        (Assignment(((0, 1), (1, 4)), (0, 1)), "rank 1 needs 12 bytes for state and one microbatch"),
        (Assignment(((0, 3), (3, 4)), (0, 1)), "rank 0 needs 6 bytes for one microbatch, more than 5"),
        (TWO_STAGES, "pin of layer 'layer0' to rank 1: it is on rank 0"),
    ],
)
def test_faults_are_named(assignment: Assignment, words: str) -> None:
    problem = make_problem(
        (1.0,) * 4, 2, state=2.0, activation=2.0, limit=(100.0, 11.0), dynamic_limit_bytes=5.0
    )
    problem = replace(problem, constraints=PlacementConstraints(pins=((0, 1),)))
    assert any(words in fault for fault in check_assignment(problem, assignment))


def test_layers_that_take_no_time_at_the_end_may_not_be_held_together() -> None:
    problem = make_problem((0.0, 1.0, 0.0, 0.0), 2, activation=3.0)
    np.testing.assert_array_equal(surely_held_bytes(problem), [3.0, 3.0, 0.0, 0.0])
    with_overhead = replace(problem, op_overhead_s=np.array([0.1, 0.1]))
    np.testing.assert_array_equal(surely_held_bytes(with_overhead), [3.0] * 4)
    np.testing.assert_array_equal(surely_held_bytes(make_problem((0.0, 0.0), 1, activation=3.0)), [0.0, 0.0])
