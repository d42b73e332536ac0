"""Memory of the pattern model: what is held for longer than a period is held several times over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.integer_times import RankMemory
from octoplan_solvers.order_search.pattern_variables import PatternVariables, edge_ends
from octoplan_solvers.order_search.precedences import most_in_flight

#: Begin, end and units of memory.
_Life = tuple[cp_model.LinearExprT, cp_model.LinearExprT, int]


def add_pattern_memory(model: cp_model.CpModel, variables: PatternVariables) -> None:
    """Limit every rank: a life of n periods and a rest counts n times always, and once more during the rest."""
    staged = variables.staged
    for rank in np.flatnonzero(np.isfinite(staged.memory_limit_bytes)).tolist():
        memory = RankMemory.of(staged, rank)
        _free_before_next(model, variables, rank, memory)
        always: cp_model.LinearExprT = 0
        intervals, sizes = [], []
        for begin, end, size in _lives(variables, rank, memory):
            if size == 0:
                continue
            whole, rest = variables.split(model, end - begin)
            phase = variables.split(model, begin)[1]
            always += size * whole
            for shift in (0, variables.period):
                finish = model.new_int_var(0, 3 * variables.period, "")
                intervals.append(model.new_interval_var(phase + shift, rest, finish, ""))
                sizes.append(size)
        if memory.capacity < 0:
            model.add_bool_or([])
        elif intervals:
            left = model.new_int_var(0, memory.capacity, "")
            model.add(left == memory.capacity - always)
            model.add_cumulative(intervals, sizes, left)


def _free_before_next(
    model: cp_model.CpModel, variables: PatternVariables, rank: int, memory: RankMemory
) -> None:
    """F of microbatch m + k starts after m is freed, if k + 1 microbatches of a stage alone are too many."""
    staged, count = variables.staged, variables.num_microbatches
    for stage in np.flatnonzero(staged.stage_rank == rank).tolist():
        most = most_in_flight(staged, stage, memory)
        for j in range(count):
            units, later = divmod(j + most, count)
            forward = variables.start[stage, 0, later] + units * variables.period
            model.add(forward >= variables.end(stage, variables.num_kinds - 1, j))


def _lives(variables: PatternVariables, rank: int, memory: RankMemory) -> Iterator[_Life]:
    staged = variables.staged
    for stage in np.flatnonzero(staged.stage_rank == rank).tolist():
        activation, freed = float(staged.activation_bytes[stage]), float(staged.freed_at_input_bytes[stage])
        workspace = memory.units(float(staged.workspace_bytes[stage]))
        for j in range(variables.num_microbatches):
            begin, end = variables.start[stage, 0, j], variables.end(stage, 1, j)
            for kind in range(variables.num_kinds):
                yield variables.start[stage, kind, j], variables.end(stage, kind, j), workspace
            if variables.num_kinds == 2:
                yield begin, end, memory.units(activation)
                continue
            last = variables.end(stage, 2, j)
            yield begin, end, memory.units(freed)
            yield begin, last, memory.units(activation - freed)
            yield end, last, memory.units(float(staged.stash_bytes[stage]))
    for edge, way in np.argwhere(staged.edge_pair >= 0).tolist():
        receiver = edge_ends(staged, edge, way)[1]
        if staged.stage_rank[receiver] == rank:
            size = memory.units(float(staged.edge_bytes[edge]))
            for j in range(variables.num_microbatches):
                arrival = variables.departure(edge, way, j) + variables.delay(edge, way)
                yield arrival, variables.start[receiver, way, j], size
