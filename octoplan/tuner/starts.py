"""Assignments to start from: regular placements with balanced cuts, by time and by memory."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from octoplan.baselines.schedule import loop_placement
from octoplan_solvers.partition_dp import balanced_boundaries, minimise_heaviest_stage
from octoplan_solvers.problem import Assignment, PipelineProblem

#: How many times thinner than the others the stages of a first round are made.
_THINNESS = (2.0, 5.0)


def starting_assignments(problem: PipelineProblem) -> list[Assignment]:
    """Return loop and zigzag placements for every number of stages per rank, balanced by time, then by memory.

    With several stages per rank the first round may also be thin: the sooner a microbatch has passed through the first
    stage of every rank, the sooner all ranks work (and the later they run dry), while rounds share out the rest evenly.
    Those that break a declared constraint are left out: the placement solver's solutions must serve then.
    """
    starts: list[Assignment] = []
    for ranks in _regular_placements(problem):
        starts.append(Assignment(tuple(balanced_boundaries(problem, list(ranks))), ranks))
        if len(ranks) > problem.num_ranks:
            starts += [_with_thin_first_round(problem, ranks, thinness) for thinness in _THINNESS]
    if np.isfinite(problem.memory_limit_bytes).any():
        starts.append(lightest_in_memory(problem))
    names = problem.layer_names
    return [start for start in starts if not problem.constraints.violations(start, names)]


def _with_thin_first_round(problem: PipelineProblem, ranks: tuple[int, ...], thinness: float) -> Assignment:
    """Balance the stages as if the first round's layers cost ``thinness`` times what they do."""
    cost = problem.rank_layer_time_s[list(ranks)].copy()
    cost[: problem.num_ranks] *= thinness
    return Assignment(tuple(minimise_heaviest_stage(cost)), ranks)


def _regular_placements(problem: PipelineProblem) -> list[tuple[int, ...]]:
    most = min(problem.max_stages_per_rank, problem.num_layers // problem.num_ranks)
    placements: list[tuple[int, ...]] = []
    for count in range(1, most + 1):
        placements.append(loop_placement(problem.num_ranks, count))
        if count > 1 and problem.num_ranks > 1:
            placements.append(zigzag_placement(problem.num_ranks, count))
    return [tuple(order[rank] for rank in ranks) for order in _rank_orders(problem) for ranks in placements]


def _rank_orders(problem: PipelineProblem) -> list[list[int]]:
    """Return the ranks as they are and, where devices differ, the slowest first and fast and slow ones by turns."""
    ranks = list(range(problem.num_ranks))
    if len(set(problem.rank_type.tolist())) == 1:
        return [ranks]
    by_speed = np.argsort(-problem.rank_layer_time_s.sum(axis=1), kind="stable").tolist()
    half = (problem.num_ranks + 1) // 2
    slow, fast = by_speed[:half], by_speed[half:][::-1]
    by_turns = [rank for pair in zip_longest(fast, slow) for rank in pair if rank is not None]
    return [ranks, by_speed, by_turns]


def zigzag_placement(num_ranks: int, stages_per_rank: int) -> tuple[int, ...]:
    """Go down the ranks and back up, again and again."""
    down = tuple(range(num_ranks))
    return tuple(rank for turn in range(stages_per_rank) for rank in (down if turn % 2 == 0 else down[::-1]))


def lightest_in_memory(problem: PipelineProblem) -> Assignment:
    """Return one stage per rank such that the fullest rank, as a share of its limit, is as empty as can be."""
    size = problem.state_bytes + problem.activation_bytes
    share = size[None, :] / problem.memory_limit_bytes[:, None]
    return Assignment(tuple(minimise_heaviest_stage(share)), tuple(range(problem.num_ranks)))
