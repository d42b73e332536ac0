"""Constraints of the partition and placement model, one function per family."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pulp

from octoplan_solvers.milp.variables import Variables
from octoplan_solvers.placement_limits import memory_limits
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.symmetry import interchangeable_groups, interchangeable_ranks


@dataclass(frozen=True)
class Context:
    """What every family needs."""

    model: pulp.LpProblem
    problem: PipelineProblem
    variables: Variables

    def add(self, constraint: pulp.LpConstraint) -> None:
        """Add one constraint."""
        self.model.addConstraint(constraint)


def add_constraints(context: Context) -> None:
    """Add every family."""
    _each_layer_on_one_rank(context)
    _every_rank_is_used(context)
    _stages_are_runs(context)
    _ranks_appear(context)
    _order_equal_ranks(context)
    _crossings(context)
    _slow_types_ahead(context)
    _skips_between_ranks(context)
    _memory(context)
    _pins(context)
    _same_rank(context)
    _different_rank(context)
    _same_stage(context)
    _boundary_after(context)
    _stages_per_rank(context)


def _each_layer_on_one_rank(context: Context) -> None:
    for row in context.variables.on:
        context.add(pulp.lpSum(row) == 1)


def _every_rank_is_used(context: Context) -> None:
    for rank in range(context.problem.num_ranks):
        context.add(pulp.lpSum(row[rank] for row in context.variables.on) >= 1)


def _stages_are_runs(context: Context) -> None:
    """A rank arrives where a layer is on it and the one before is not; a cut needs both layers on it."""
    add, on, arrives = context.add, context.variables.on, context.variables.arrives
    for rank in range(context.problem.num_ranks):
        add(arrives[0][rank] == on[0][rank])
        for layer in range(1, context.problem.num_layers):
            add(arrives[layer][rank] <= on[layer][rank])
            add(arrives[layer][rank] + on[layer - 1][rank] <= 1)
            add(arrives[layer][rank] >= on[layer][rank] - on[layer - 1][rank])
    for (layer, rank), cut in context.variables.cuts.items():
        add(cut <= on[layer][rank])
        add(cut <= on[layer - 1][rank])


def _ranks_appear(context: Context) -> None:
    """``seen`` is the running OR of ``on``."""
    add, on, seen = context.add, context.variables.on, context.variables.seen
    for rank in range(context.problem.num_ranks):
        add(seen[0][rank] == on[0][rank])
        for layer in range(1, context.problem.num_layers):
            add(seen[layer][rank] >= on[layer][rank])
            add(seen[layer][rank] >= seen[layer - 1][rank])
            add(seen[layer][rank] <= seen[layer - 1][rank] + on[layer][rank])


def _order_equal_ranks(context: Context) -> None:
    """Of two interchangeable ranks the lower number appears first, and so with groups of ranks (nodes)."""
    groups = interchangeable_ranks(context.problem)
    leaders = [
        [groups[index][0] for index in members] for members in interchangeable_groups(context.problem, groups)
    ]
    for group in (*groups, *leaders):
        for first, second in pairwise(group):
            for row in context.variables.seen:
                context.add(row[second] <= row[first])


def _crossings(context: Context) -> None:
    """Where the rank changes, and which changes lie on the way to each rank's first layer."""
    add, variables = context.add, context.variables
    for layer, crosses in variables.crosses.items():
        add(pulp.lpSum(variables.arrives[layer]) == crosses)
        for rank, seen in enumerate(variables.seen[layer - 1]):
            add(variables.ahead[layer, rank] + seen >= crosses)


def _slow_types_ahead(context: Context) -> None:
    variables, rank_type = context.variables, context.problem.rank_type
    for (kind, layer, rank), slow in variables.slow.items():
        of_kind = np.flatnonzero(rank_type == kind).tolist()
        on_kind = pulp.lpSum(variables.on[layer][other] for other in of_kind)
        context.add(slow + variables.seen[layer][rank] >= on_kind)


def _skips_between_ranks(context: Context) -> None:
    on, problem = context.variables.on, context.problem
    for index, differs in context.variables.differs.items():
        source, destination = int(problem.skip_source[index]), int(problem.skip_destination[index])
        for rank in range(problem.num_ranks):
            context.add(differs >= on[source][rank] - on[destination][rank])


def _memory(context: Context) -> None:
    """State and one microbatch's activations fit: after the last F of its first microbatch a rank holds both."""
    for limit in memory_limits(context.problem):
        # A layer above the limit by itself never fits, however far.
        shares = np.minimum(limit.layer_bytes / limit.limit_bytes, 1e4).tolist()
        column = [row[limit.rank] for row in context.variables.on]
        context.add(_weighted(shares, column) <= 1)


def _pins(context: Context) -> None:
    for layer, rank in context.problem.constraints.pins:
        context.add(context.variables.on[layer][rank] == 1)


def _same_rank(context: Context) -> None:
    on = context.variables.on
    for group in context.problem.constraints.same_rank:
        for one, other in pairwise(group):
            for rank in range(context.problem.num_ranks):
                context.add(on[one][rank] == on[other][rank])


def _different_rank(context: Context) -> None:
    on = context.variables.on
    for group in context.problem.constraints.different_rank:
        for rank in range(context.problem.num_ranks):
            context.add(pulp.lpSum(on[layer][rank] for layer in group) <= 1)


def _same_stage(context: Context) -> None:
    for first, end in context.problem.constraints.same_stage:
        for layer in range(first + 1, end):
            context.add(context.variables.boundary(layer) == 0)


def _boundary_after(context: Context) -> None:
    for layer in context.problem.constraints.boundary_after:
        if layer + 1 < context.problem.num_layers:
            context.add(context.variables.boundary(layer + 1) == 1)


def _stages_per_rank(context: Context) -> None:
    problem, rule = context.problem, context.problem.constraints.stages_per_rank
    most = min(problem.max_stages_per_rank, rule.max or problem.max_stages_per_rank)
    common = context.model.add_variable("stages", 1, most, cat="Integer") if rule.equal else None
    for rank in range(problem.num_ranks):
        count = context.variables.num_stages(rank)
        context.add(count <= most)
        if rule.min > 1:
            context.add(count >= rule.min)
        if common is not None:
            context.add(count == common)


def _weighted(weights: list[float], terms: list[pulp.LpVariable]) -> pulp.LpAffineExpression:
    return pulp.LpAffineExpression([(term, weight) for term, weight in zip(terms, weights, strict=True)])
