"""Constraints of the partition and placement model, one function per family."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers import constraints as texts
from octoplan_solvers.cp_sat.guards import Guards
from octoplan_solvers.cp_sat.variables import Variables
from octoplan_solvers.placement_limits import memory_limits
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.symmetry import interchangeable_groups, interchangeable_ranks

#: Bytes are counted in units of a limit divided by this.
MEMORY_RESOLUTION = 10_000_000


@dataclass(frozen=True)
class Context:
    """What every family needs."""

    model: cp_model.CpModel
    problem: PipelineProblem
    variables: Variables
    guards: Guards
    #: Units of a memory limit that a rank may use: `MEMORY_RESOLUTION`, or a variable.
    memory_room: cp_model.LinearExprT = MEMORY_RESOLUTION


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
        context.model.add_exactly_one(row)


def _every_rank_is_used(context: Context) -> None:
    for rank in range(context.problem.num_ranks):
        guard = context.guards.named(texts.RANKS_USED_TEXT)
        context.model.add_bool_or(row[rank] for row in context.variables.on).only_enforce_if(guard)


def _stages_are_runs(context: Context) -> None:
    """A rank arrives where a layer is on it and the one before is not; a cut needs both layers on it."""
    model, on, arrives = context.model, context.variables.on, context.variables.arrives
    for rank in range(context.problem.num_ranks):
        model.add(arrives[0][rank] == on[0][rank])
        for layer in range(1, context.problem.num_layers):
            model.add_implication(arrives[layer][rank], on[layer][rank])
            model.add_implication(arrives[layer][rank], ~on[layer - 1][rank])
            model.add_bool_or(arrives[layer][rank], ~on[layer][rank], on[layer - 1][rank])
    for (layer, rank), cut in context.variables.cuts.items():
        model.add_implication(cut, on[layer][rank])
        model.add_implication(cut, on[layer - 1][rank])


def _ranks_appear(context: Context) -> None:
    """``seen`` is the running OR of ``on``."""
    model, on, seen = context.model, context.variables.on, context.variables.seen
    for rank in range(context.problem.num_ranks):
        model.add(seen[0][rank] == on[0][rank])
        for layer in range(1, context.problem.num_layers):
            model.add_implication(on[layer][rank], seen[layer][rank])
            model.add_implication(seen[layer - 1][rank], seen[layer][rank])
            model.add_bool_or(~seen[layer][rank], seen[layer - 1][rank], on[layer][rank])


def _order_equal_ranks(context: Context) -> None:
    """Of two interchangeable ranks the lower number appears first, and so with groups of ranks (nodes)."""
    groups = interchangeable_ranks(context.problem)
    leaders = [
        [groups[index][0] for index in members] for members in interchangeable_groups(context.problem, groups)
    ]
    for group in (*groups, *leaders):
        for first, second in pairwise(group):
            for row in context.variables.seen:
                context.model.add_implication(row[second], row[first])


def _crossings(context: Context) -> None:
    """Where the rank changes, and which changes lie on the way to each rank's first layer."""
    model, variables = context.model, context.variables
    for layer, crosses in variables.crosses.items():
        model.add(sum(variables.arrives[layer]) == crosses)
        for rank, seen in enumerate(variables.seen[layer - 1]):
            model.add_bool_or(variables.ahead[layer, rank], seen, ~crosses)


def _slow_types_ahead(context: Context) -> None:
    variables, rank_type = context.variables, context.problem.rank_type
    for (kind, layer, rank), slow in variables.slow.items():
        on_kind = sum(variables.on[layer][other] for other in np.flatnonzero(rank_type == kind).tolist())
        context.model.add(slow + variables.seen[layer][rank] >= on_kind)


def _skips_between_ranks(context: Context) -> None:
    on, problem = context.variables.on, context.problem
    for index, differs in context.variables.differs.items():
        source, destination = int(problem.skip_source[index]), int(problem.skip_destination[index])
        for rank in range(problem.num_ranks):
            context.model.add_bool_or(differs, ~on[source][rank], on[destination][rank])


def _memory(context: Context) -> None:
    """State and one microbatch's activations fit: after the last F of its first microbatch a rank holds both."""
    for limit in memory_limits(context.problem):
        unit = limit.limit_bytes / MEMORY_RESOLUTION
        # A layer above the limit by itself never fits, however far.
        sizes = np.floor(np.minimum(limit.layer_bytes / unit, 1e11)).astype(np.int64).tolist()
        column = [row[limit.rank] for row in context.variables.on]
        total = sum(size * variable for size, variable in zip(sizes, column, strict=True))
        context.model.add(total <= context.memory_room).only_enforce_if(context.guards.named(limit.name))


def _pins(context: Context) -> None:
    names = context.problem.layer_names
    for layer, rank in context.problem.constraints.pins:
        guard = context.guards.named(texts.pin_text(layer, rank, names))
        context.model.add(context.variables.on[layer][rank] == 1).only_enforce_if(guard)


def _same_rank(context: Context) -> None:
    on, names = context.variables.on, context.problem.layer_names
    for group in context.problem.constraints.same_rank:
        guard = context.guards.named(texts.same_rank_text(group, names))
        for one, other in pairwise(group):
            for rank in range(context.problem.num_ranks):
                context.model.add(on[one][rank] == on[other][rank]).only_enforce_if(guard)


def _different_rank(context: Context) -> None:
    on, names = context.variables.on, context.problem.layer_names
    for group in context.problem.constraints.different_rank:
        guard = context.guards.named(texts.different_rank_text(group, names))
        for rank in range(context.problem.num_ranks):
            context.model.add(sum(on[layer][rank] for layer in group) <= 1).only_enforce_if(guard)


def _same_stage(context: Context) -> None:
    for first, end in context.problem.constraints.same_stage:
        guard = context.guards.named(texts.same_stage_text(first, end, context.problem.layer_names))
        for layer in range(first + 1, end):
            context.model.add(context.variables.boundary(layer) == 0).only_enforce_if(guard)


def _boundary_after(context: Context) -> None:
    for layer in context.problem.constraints.boundary_after:
        if layer + 1 < context.problem.num_layers:
            guard = context.guards.named(texts.boundary_text(layer, context.problem.layer_names))
            context.model.add(context.variables.boundary(layer + 1) == 1).only_enforce_if(guard)


def _stages_per_rank(context: Context) -> None:
    problem, rule = context.problem, context.problem.constraints.stages_per_rank
    common = context.model.new_int_var(1, problem.num_layers, "stages") if rule.equal else None
    for rank in range(problem.num_ranks):
        count = context.variables.num_stages(rank)
        for most in {problem.max_stages_per_rank, rule.max or problem.max_stages_per_rank}:
            guard = context.guards.named(texts.max_stages_text(most, rank))
            context.model.add(count <= most).only_enforce_if(guard)
        if rule.min > 1:
            guard = context.guards.named(texts.min_stages_text(rule.min, rank))
            context.model.add(count >= rule.min).only_enforce_if(guard)
        if common is not None:
            guard = context.guards.named(texts.EQUAL_STAGES_TEXT)
            context.model.add(count == common).only_enforce_if(guard)
