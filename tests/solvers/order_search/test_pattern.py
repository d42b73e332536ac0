"""Patterns: one repeating unit, checked by laying it out several times over."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from octoplan_solvers.order_search import Effort, Pattern, solve_pattern, unroll
from octoplan_solvers.order_search.order_memory import peak_without_transfers
from octoplan_solvers.order_search.pattern import least_seconds_per_microbatch
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import equal_sizes_problem, evaluator, random_problem

EFFORT = Effort(0.3, num_workers=1, deterministic=True)


def solved(staged: StagedProblem, size: int) -> Pattern:
    pattern = solve_pattern(staged, size, EFFORT)
    assert pattern is not None
    return pattern


def laid_out(
    staged: StagedProblem, pattern: Pattern, units: int
) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Return start and end of every op of so many units, by stage, class and microbatch."""
    size = pattern.num_microbatches
    kinds = [0, 1, 2] if staged.split_backward else [0, 3]
    return {
        (stage, k, unit * size + j): (begin, begin + int(pattern.times.duration[stage, kind]))
        for unit in range(units)
        for stage in range(staged.num_stages)
        for k, kind in enumerate(kinds)
        for j in range(size)
        for begin in [int(pattern.offset[stage, k, j]) + unit * pattern.period]
    }


@pytest.mark.parametrize("seed", range(14))
def test_laid_out_patterns_break_no_rule(seed: int) -> None:
    staged = random_problem(np.random.default_rng(seed), whole=True)
    pattern = solve_pattern(staged, 1 + seed % 2, EFFORT)
    if pattern is None:
        # Not even one microbatch fits in any way.
        assert solve_pattern(staged.with_limit(np.inf), 1 + seed % 2, EFFORT) is not None
        return
    ops = laid_out(staged, pattern, 6)
    check_ranks(staged, ops)
    check_data(staged, pattern, ops)
    many = replace(staged, num_microbatches=6 * pattern.num_microbatches)
    assert (peak_without_transfers(many, unroll(many, pattern)) <= many.memory_limit_bytes).all()


def check_ranks(staged: StagedProblem, ops: dict[tuple[int, int, int], tuple[int, int]]) -> None:
    """One op at a time."""
    by_rank = defaultdict(list)
    for (stage, _, _), times in ops.items():
        by_rank[int(staged.stage_rank[stage])].append(times)
    for times in by_rank.values():
        times.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(times))


def check_data(
    staged: StagedProblem, pattern: Pattern, ops: dict[tuple[int, int, int], tuple[int, int]]
) -> None:
    """Everything that an op waits for is there."""
    delay = pattern.times.transfer + pattern.times.latency
    for (stage, kind, m), (begin, _) in ops.items():
        if kind > 0:
            assert ops[stage, kind - 1, m][1] <= begin
        for edge, ends in enumerate(
            zip(staged.edge_source.tolist(), staged.edge_destination.tolist(), strict=True)
        ):
            sender, receiver = ends if kind == 0 else ends[::-1]
            if kind < 2 and receiver == stage:
                wait = int(delay[edge, kind]) if staged.edge_crosses[edge] else 0
                assert ops[sender, kind, m][1] + wait <= begin


def test_room_for_one_microbatch_gives_its_round_trip() -> None:
    """Two ranks: F, transfer, F, I, transfer, I, W, and only then the next one."""
    pattern = solved(equal_sizes_problem(2, 8, 1), 1)
    assert pattern.seconds_per_microbatch == pytest.approx(1 + 0.1 + 1 + 1 + 0.1 + 1 + 1)
    assert pattern.period_bound == pattern.period


def test_two_microbatches_of_a_unit_can_share_a_round_trip() -> None:
    """Four ranks with room for three: alone a microbatch takes 4.2 s, a pair 7.4 s."""
    staged = equal_sizes_problem(4, 16, 3)
    assert [solved(staged, size).seconds_per_microbatch for size in (1, 2)] == pytest.approx([4.2, 3.7])


def test_with_ample_memory_the_busiest_rank_never_waits() -> None:
    staged = equal_sizes_problem(4, 16, 8, forward=[1, 2, 1, 1])
    pattern = solved(staged, 1)
    assert pattern.seconds_per_microbatch == pytest.approx(least_seconds_per_microbatch(staged)) == 4.0
    many = replace(staged, num_microbatches=200)
    makespan = evaluator(many)(unroll(many, pattern))
    assert makespan is not None
    assert 200 * 4.0 <= makespan <= 200 * 4.0 + 30


def test_what_cannot_fit_has_no_pattern() -> None:
    assert solve_pattern(equal_sizes_problem(2, 4, 0.5), 1, EFFORT) is None


def test_slower_patterns_than_asked_for_are_not_returned() -> None:
    staged = equal_sizes_problem(2, 8, 1)
    assert solve_pattern(staged, 1, EFFORT, slowest_s=5.0) is None
    assert solve_pattern(staged, 1, EFFORT, slowest_s=5.2) is not None
