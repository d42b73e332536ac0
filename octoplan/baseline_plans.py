"""Baselines on a problem: partition, placement and published order, simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from octoplan.baselines import Strategy, baseline, build_schedule, uniform_boundaries
from octoplan.baselines.schedule import StageCosts, loop_placement, v_placement
from octoplan.ordering import OrderedPlan, run_order
from octoplan_schemas import InputError, ModelGraph
from octoplan_solvers.ops import BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from octoplan_solvers.order import Order
from octoplan_solvers.partition_dp import balanced_boundaries
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import StagedProblem, build_staged


def baseline_problem(problem: PipelineProblem, strategy: Strategy) -> PipelineProblem:
    """Return the problem with the baseline's own backward and number of stages per rank."""
    spec = baseline(strategy.name)
    return replace(
        problem,
        split_backward=spec.backward == "split",
        max_stages_per_rank=strategy.stages_per_rank or spec.stages_per_rank,
    )


def run_baseline(problem: PipelineProblem, model: ModelGraph, strategy: Strategy) -> OrderedPlan:
    """Build and simulate a baseline; whether it fits into memory is for the caller to see.

    Raises
    ------
    InputError
        If the method does not admit these numbers of ranks, stages or microbatches.
    """
    spec = baseline(strategy.name)
    per_rank = strategy.stages_per_rank or spec.stages_per_rank
    num_ranks = problem.num_ranks
    ranks = v_placement(num_ranks) if spec.placement == "v" else loop_placement(num_ranks, per_rank)
    assignment = Assignment(tuple(_boundaries(problem, model, strategy, ranks)), ranks)
    staged = build_staged(baseline_problem(problem, strategy), assignment)
    schedule = build_schedule(
        strategy.name, num_ranks, problem.num_microbatches, per_rank, stage_costs(staged)
    )
    assert schedule.placement == ranks, "the partition was made for another placement"
    return run_order(staged, Order.from_lists(schedule.orders, problem.num_microbatches))


def _boundaries(
    problem: PipelineProblem, model: ModelGraph, strategy: Strategy, ranks: tuple[int, ...]
) -> list[tuple[int, int]]:
    if strategy.partition == "uniform":
        return uniform_boundaries([layer.kind for layer in model.layers], len(ranks))
    if len(ranks) > problem.num_layers:
        raise InputError(
            f"{strategy} needs {len(ranks)} stages, but the model has {problem.num_layers} layers; take fewer "
            "stages per rank, fewer ranks, or finer layers",
            field="strategy",
        )
    return balanced_boundaries(problem, list(ranks))


def stage_costs(staged: StagedProblem) -> StageCosts:
    """Return the costs that time-aware baselines look at."""
    chain = staged.edge_destination - staged.edge_source == 1
    delay = np.zeros(max(staged.num_stages - 1, 0))
    delay[staged.edge_source[chain]] = (staged.transfer_s + staged.latency_s)[chain, 0]
    forward, backward_input, backward_weight = (
        tuple(staged.duration_s[:, kind].tolist()) for kind in (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
    )
    return StageCosts(forward, backward_input, backward_weight, tuple(delay.tolist()))
