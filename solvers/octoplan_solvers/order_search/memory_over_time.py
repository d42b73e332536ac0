"""Memory of every rank as intervals over time: exact where times are, and only used there.

`octoplan_solvers.order_search.memory` says the same for the instants at which ops run, in terms of their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.integer_times import RankMemory
from octoplan_solvers.order_search.variables import Variables, consumer
from octoplan_solvers.order_search.window import Op


@dataclass(frozen=True, slots=True)
class _Holding:
    """Units that a rank holds from one time to another."""

    begin: cp_model.LinearExprT
    end: cp_model.LinearExprT
    size: int


def add_memory_over_time(model: cp_model.CpModel, variables: Variables) -> None:
    """Limit what every rank holds at any time; only for the whole problem."""
    for rank in np.flatnonzero(np.isfinite(variables.window.staged.memory_limit_bytes)).tolist():
        memory = RankMemory.of(variables.window.staged, rank)
        intervals, sizes = [], []
        for holding in _holdings(variables, rank, memory):
            length = model.new_int_var(0, variables.horizon, "")
            intervals.append(model.new_interval_var(holding.begin, length, holding.end, ""))
            sizes.append(holding.size)
        if memory.capacity < 0:
            model.add_bool_or([])
        else:
            model.add_cumulative(intervals, sizes, memory.capacity)


def _holdings(variables: Variables, rank: int, memory: RankMemory) -> Iterator[_Holding]:
    staged = variables.window.staged
    for stage in np.flatnonzero(staged.stage_rank == rank).tolist():
        yield from _activations(variables, stage, memory)
    for op in variables.window.ops[rank]:
        size = memory.units(float(staged.workspace_bytes[op[0]]))
        yield _Holding(variables.start[op], variables.end[op], size)
    for edge, direction in np.argwhere(staged.edge_pair >= 0).tolist():
        if staged.pairs[staged.edge_pair[edge, direction], 1] == rank:
            size = memory.units(float(staged.edge_bytes[edge]))
            for microbatch in range(staged.num_microbatches):
                message = edge, direction, microbatch
                arrival = variables.departure(message) + variables.delay(message)
                yield _Holding(arrival, variables.start[consumer(staged, message)], size)


def _activations(variables: Variables, stage: int, memory: RankMemory) -> Iterator[_Holding]:
    """From the start of F to the end of what frees it; the stash from the end of I to the end of W."""
    staged = variables.window.staged
    activation, freed = float(staged.activation_bytes[stage]), float(staged.freed_at_input_bytes[stage])
    stash = memory.units(float(staged.stash_bytes[stage]))
    for microbatch in range(staged.num_microbatches):
        forward, backward, weight = ((stage, kind, microbatch) for kind in range(3))
        start, end = variables.start[forward], variables.end[backward]
        if _is_one_op(variables, backward):
            yield _Holding(start, end, memory.units(activation))
        else:
            yield _Holding(start, end, memory.units(freed))
            yield _Holding(start, variables.end[weight], memory.units(activation - freed))
            yield _Holding(end, variables.end[weight], stash)


def _is_one_op(variables: Variables, backward: Op) -> bool:
    window, slot = variables.window, (backward[0], backward[2])
    return bool(window.is_fused[slot] and not window.may_choose[slot])
