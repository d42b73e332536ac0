"""Constraints of the partition and placement model, one function per family."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.cp_sat.variables import Variables
from octoplan_solvers.problem import PipelineProblem

#: Bytes are counted in units of a limit divided by this.
_MEMORY_RESOLUTION = 1_000_000


def add_constraints(model: cp_model.CpModel, problem: PipelineProblem, variables: Variables) -> None:
    """Add every family."""
    _each_layer_on_one_rank(model, problem, variables)
    _stages_are_runs(model, problem, variables)
    _ranks_appear(model, problem, variables)
    _memory(model, problem, variables)
    _order_equal_ranks(model, problem, variables)


def _each_layer_on_one_rank(model: cp_model.CpModel, problem: PipelineProblem, variables: Variables) -> None:
    for row in variables.on:
        model.add_exactly_one(row)
    for rank in range(problem.num_ranks):
        model.add_at_least_one(row[rank] for row in variables.on)


def _stages_are_runs(model: cp_model.CpModel, problem: PipelineProblem, variables: Variables) -> None:
    """A stage begins where a layer is on a rank and the one before is not; each rank has at most so many."""
    on, begins = variables.on, variables.begins
    for rank in range(problem.num_ranks):
        model.add(begins[0][rank] == on[0][rank])
        for layer in range(1, problem.num_layers):
            model.add_implication(begins[layer][rank], on[layer][rank])
            model.add_implication(begins[layer][rank], ~on[layer - 1][rank])
            model.add_bool_or(begins[layer][rank], ~on[layer][rank], on[layer - 1][rank])
        model.add(sum(row[rank] for row in begins) <= problem.max_stages_per_rank)


def _ranks_appear(model: cp_model.CpModel, problem: PipelineProblem, variables: Variables) -> None:
    """``seen`` is the running OR of ``on``."""
    on, seen = variables.on, variables.seen
    for rank in range(problem.num_ranks):
        model.add(seen[0][rank] == on[0][rank])
        for layer in range(1, problem.num_layers):
            model.add_implication(on[layer][rank], seen[layer][rank])
            model.add_implication(seen[layer - 1][rank], seen[layer][rank])
            model.add_bool_or(~seen[layer][rank], seen[layer - 1][rank], on[layer][rank])


def _memory(model: cp_model.CpModel, problem: PipelineProblem, variables: Variables) -> None:
    """State and one microbatch's activations fit: between its last F and first backward a rank holds all of them."""
    for rank in range(problem.num_ranks):
        for limit, size in (
            (float(problem.memory_limit_bytes[rank]), problem.state_bytes + problem.activation_bytes),
            (problem.dynamic_limit_bytes, problem.activation_bytes),
        ):
            if not np.isfinite(limit) or not size.any():
                continue
            unit = limit / _MEMORY_RESOLUTION
            sizes = np.floor(size / unit).astype(np.int64)
            total = sum(int(bytes_) * row[rank] for bytes_, row in zip(sizes, variables.on, strict=True))
            model.add(total <= _MEMORY_RESOLUTION)


def _order_equal_ranks(model: cp_model.CpModel, problem: PipelineProblem, variables: Variables) -> None:
    """Of two interchangeable ranks the lower number appears first."""
    for group in interchangeable_ranks(problem):
        for first, second in pairwise(group):
            for row in variables.seen:
                model.add_implication(row[second], row[first])


def interchangeable_ranks(problem: PipelineProblem) -> list[list[int]]:
    """Group ranks that can swap names: same type, limit and overhead, and the same links to everyone."""
    groups: list[list[int]] = []
    for rank in range(problem.num_ranks):
        for group in groups:
            if all(_can_swap(problem, rank, member) for member in group):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return groups


def _can_swap(problem: PipelineProblem, one: int, other: int) -> bool:
    for values in (problem.rank_type, problem.op_overhead_s, problem.memory_limit_bytes):
        if values[one] != values[other]:
            return False
    swapped = np.arange(problem.num_ranks)
    swapped[[one, other]] = swapped[[other, one]]
    between = ~np.eye(problem.num_ranks, dtype=bool)
    return all(
        bool((table == table[np.ix_(swapped, swapped)])[between].all())
        for table in (problem.latency_s, problem.bandwidth)
    )
