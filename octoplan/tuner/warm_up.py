"""Compile the search's kernels before its clock starts; the first run on a machine pays, later ones load a cache."""

from __future__ import annotations

import numpy as np

from octoplan.ordering import order_by_policy
from octoplan.tuner.annealing_kernel import anneal_kernel
from octoplan.tuner.arrays import problem_arrays
from octoplan.tuner.balance_kernel import even_loads_kernel
from octoplan.tuner.candidate import Pricer
from octoplan_solvers.problem import Assignment, PipelineProblem


def warm_up() -> None:
    """Price and order a toy problem, so that every kernel of the search is compiled."""
    pricer = Pricer(_toy_problem())
    start = pricer.best(Assignment.from_sizes([1, 1], [0, 1]))
    assert start is not None
    anneal_kernel(
        problem_arrays(pricer.problem),
        start.cuts,
        start.ranks,
        start.rule,
        start.delta,
        start.makespan_s,
        1,
        0.01,
        0.01,
        0.5,
        0.25,
        0,
    )
    even_loads_kernel(pricer.arrays, start.cuts, start.ranks, 1, 0.1, 0)
    scheduler = pricer.scheduler(start.assignment)
    assert scheduler is not None
    order_by_policy(scheduler, start.policy(scheduler)).excess_bytes()


def _toy_problem() -> PipelineProblem:
    """Return two equal layers on two equal ranks, with a memory limit."""
    ones, none = np.ones(2), np.zeros(0, dtype=np.int64)
    return PipelineProblem(
        forward_s=np.ones((1, 2)),
        backward_input_s=np.ones((1, 2)),
        backward_weight_s=np.ones((1, 2)),
        rank_type=np.zeros(2, dtype=np.int64),
        op_overhead_s=np.zeros(2),
        state_bytes=ones,
        activation_bytes=ones,
        retained_bytes=ones,
        weight_stash_bytes=ones,
        workspace_bytes=ones,
        output_bytes=ones,
        skip_source=none,
        skip_destination=none,
        skip_bytes=np.zeros(0),
        latency_s=np.zeros((2, 2)),
        bandwidth=np.ones((2, 2)),
        num_microbatches=2,
        split_backward=True,
        max_stages_per_rank=2,
        memory_limit_bytes=np.full(2, 100.0),
    )
