"""A lower bound from counting layers by kind: which numbers of each kind a rank holds, contiguity dropped.

Published models repeat a few kinds of layers, and a rank's work is a sum of whole layers: with few ranks per layer no
split of the work is even. Number the ranks by first appearance along the model. Let p_r be the number of layers ahead
of the r-th one's first layer: the ranks before it hold all of them, and with that layer its own rank is among those
that do. One microbatch's forward through them, r transfers and r op overheads precede its first op; on the way back as
much follows its last I or B. So, with work_r the sum over the kinds that it holds,

    split:  makespan >= head_r + M * work_r    and    makespan >= head_r + M * (F + I)_r + tail_r
    fused:  makespan >= head_r + M * work_r + tail_r

for every r. CP-SAT minimises the largest of these; its bound at any time is a bound of the makespan. Which device type
the r-th rank to appear has is a decision, too: its work counts at that type's times, while heads and tails count every
layer on its fastest type. Ranks of one type may differ in op overhead; the least of the type counts.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.bounds import least_latency
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.stopping import stopped_by

#: Integer units in the work of one rank: for the loads alone few enough that CP-SAT closes most gaps in a second.
_LOADS_RESOLUTION = 20_000
_RESOLUTION = 100_000
#: Share of the time for the loads alone, whose bound the model with heads and tails starts from.
_LOADS_SHARE = 0.4
#: With more kinds of layers than this, counting them says little and costs much.
MOST_KINDS = 16


@dataclass(frozen=True)
class LayerKinds:
    """Layers grouped by equal times. ``K`` kinds."""

    #: ``(L,)`` kind of each layer, ``(K,)`` one layer of each kind and their number.
    of_layer: IntArray
    example: IntArray
    count: IntArray

    @classmethod
    def of(cls, problem: PipelineProblem) -> LayerKinds:
        """Group the layers that cost the same on every device type."""
        times = np.concatenate([problem.forward_s, problem.backward_input_s, problem.backward_weight_s])
        _, example, of_layer, count = np.unique(
            times, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(of_layer.reshape(-1), example, count)


def applies(problem: PipelineProblem) -> bool:
    """True if the bound is worth its time."""
    return len(LayerKinds.of(problem).count) <= MOST_KINDS


def kind_bound(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    deterministic: bool = False,
    stop: threading.Event | None = None,
) -> float:
    """Return the bound in seconds; 0 if the time did not suffice for any.

    Parameters
    ----------
    time_limit_s:
        Seconds, or CP-SAT's deterministic seconds with ``deterministic``.
    stop:
        Once set, the search ends soon with what it has.
    """
    started = time.monotonic()

    def solve(model: cp_model.CpModel, limit_s: float) -> int:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = num_workers
        solver.parameters.random_seed = seed
        solver.parameters.catch_sigint_signal = False
        if deterministic:
            solver.parameters.max_deterministic_time = limit_s
        else:
            solver.parameters.max_time_in_seconds = limit_s
        with stopped_by(solver, stop):
            status = solver.solve(model)
        known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN)
        return max(int(np.ceil(solver.best_objective_bound - 1e-6)), 0) if known else 0

    coarse, fine = _Scale.of(problem, _LOADS_RESOLUTION), _Scale.of(problem, _RESOLUTION)
    loads_s = solve(_loads_model(problem, coarse), _LOADS_SHARE * time_limit_s) * coarse.unit_s
    left = time_limit_s * (1 - _LOADS_SHARE) if deterministic else time_limit_s - (time.monotonic() - started)
    ordered = _ordered_model(problem, fine, int(fine.floor(loads_s)))
    return max(loads_s, solve(ordered, max(left, 0.01)) * fine.unit_s)


def _loads_model(problem: PipelineProblem, scale: _Scale) -> cp_model.CpModel:
    """State the loads alone: heads and tails left out, and with them the order of appearance."""
    model = cp_model.CpModel()
    kinds = LayerKinds.of(problem)
    tables = [
        _WorkTable.of(problem, kinds, device_type, scale) for device_type in range(len(problem.forward_s))
    ]
    makespan = model.new_int_var(0, 100 * problem.num_ranks * _RESOLUTION, "makespan")
    ranks = np.argsort(problem.rank_type, kind="stable")
    holds = [[model.new_int_var(0, int(number), "") for number in kinds.count] for _ in ranks]
    for kind, number in enumerate(kinds.count):
        model.add(sum(row[kind] for row in holds) == int(number))
    loads = []
    for rank, row in zip(ranks, holds, strict=True):
        table = tables[problem.rank_type[rank]]
        loads.append(_weighted(row, table.work) + table.overhead)
        model.add(makespan >= loads[-1])
    for place, (one, other) in enumerate(pairwise(ranks)):
        if problem.rank_type[one] == problem.rank_type[other]:
            model.add(loads[place] <= loads[place + 1])
    model.minimize(makespan)
    return model


def _ordered_model(problem: PipelineProblem, scale: _Scale, at_least: int) -> cp_model.CpModel:
    """State the whole of it, with a bound that is known."""
    model = cp_model.CpModel()
    kinds = LayerKinds.of(problem)
    has_type = _add_types(model, problem)
    holds = _add_holds(model, problem, kinds, has_type)
    ahead = _add_ahead(model, problem, kinds, holds)
    tables = [_WorkTable.of(problem, kinds, device_type, scale) for device_type in range(len(has_type[0]))]
    heads, tails = _heads_and_tails(problem, scale)
    makespan = model.new_int_var(at_least, 100 * problem.num_ranks * _RESOLUTION, "makespan")
    for rank in range(problem.num_ranks):
        head = _element(model, ahead[rank], heads[rank])
        tail = _element(model, ahead[rank], tails[rank])
        overhead = sum(
            is_type * table.overhead for is_type, table in zip(has_type[rank], tables, strict=True)
        )
        work = sum(_weighted(row, table.work) for row, table in zip(holds[rank], tables, strict=True))
        chain = sum(_weighted(row, table.chain_work) for row, table in zip(holds[rank], tables, strict=True))
        if problem.split_backward:
            model.add(makespan >= head + work + overhead)
            model.add(makespan >= head + chain + overhead + tail)
        else:
            model.add(makespan >= head + work + overhead + tail)
    # Implied, but not by the linear relaxation: the ranks of a type share the work that is done on it.
    for device_type, table in enumerate(tables):
        number = int((problem.rank_type == device_type).sum())
        rows = [holds[rank][device_type] for rank in range(problem.num_ranks)]
        model.add(
            number * makespan >= sum(_weighted(row, table.work) for row in rows) + number * table.overhead
        )
    model.minimize(makespan)
    return model


def _weighted(variables: list[cp_model.IntVar], weights: list[int]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum(variables, weights)


def _add_holds(
    model: cp_model.CpModel,
    problem: PipelineProblem,
    kinds: LayerKinds,
    has_type: list[list[cp_model.IntVar]],
) -> list[list[list[cp_model.IntVar]]]:
    """Return how many layers of each kind a rank holds, per rank in order of appearance and device type.

    All are 0 for the types that the rank does not have: the work is then linear in them.
    """
    holds = [
        [
            [
                model.new_int_var(0, int(number), f"holds[{rank},{device_type},{kind}]")
                for kind, number in enumerate(kinds.count)
            ]
            for device_type in range(len(has_type[rank]))
        ]
        for rank in range(problem.num_ranks)
    ]
    for kind, number in enumerate(kinds.count):
        model.add(sum(row[kind] for rows in holds for row in rows) == int(number))
    if len(has_type[0]) > 1:
        for rows, types in zip(holds, has_type, strict=True):
            for row, is_type in zip(rows, types, strict=True):
                for variable, number in zip(row, kinds.count, strict=True):
                    model.add(variable <= int(number) * is_type)
    return holds


@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds to integer units, always downwards."""

    unit_s: float

    @classmethod
    def of(cls, problem: PipelineProblem, resolution: int) -> _Scale:
        work_s = problem.num_microbatches * float(problem.layer_time_s.min(axis=0).sum())
        return cls(max(work_s / problem.num_ranks, 1e-12) / resolution)

    def floor(self, seconds: FloatArray | float) -> IntArray:
        return np.floor(np.asarray(seconds) / self.unit_s * (1 - 1e-12)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _WorkTable:
    """Work of all microbatches of a layer of each kind on one device type, all of it and without W, and overheads."""

    work: list[int]
    chain_work: list[int]
    overhead: int

    @classmethod
    def of(cls, problem: PipelineProblem, kinds: LayerKinds, device_type: int, scale: _Scale) -> _WorkTable:
        count = problem.num_microbatches
        chain = problem.forward_s[device_type] + problem.backward_input_s[device_type]
        work = chain + problem.backward_weight_s[device_type]
        overhead = float(problem.op_overhead_s[problem.rank_type == device_type].min(initial=np.inf))
        return cls(
            scale.floor(count * work[kinds.example]).tolist(),
            scale.floor(count * chain[kinds.example]).tolist(),
            int(scale.floor(2 * count * overhead)) if np.isfinite(overhead) else 0,
        )


def _add_types(model: cp_model.CpModel, problem: PipelineProblem) -> list[list[cp_model.IntVar]]:
    """Return, for every rank in order of appearance, which device type it has."""
    counts = np.bincount(problem.rank_type, minlength=len(problem.forward_s)).tolist()
    if len(counts) == 1:
        return [[model.new_constant(1)] for _ in range(problem.num_ranks)]
    has_type = [
        [model.new_bool_var(f"type[{rank},{device_type}]") for device_type in range(len(counts))]
        for rank in range(problem.num_ranks)
    ]
    for row in has_type:
        model.add_exactly_one(row)
    for device_type, number in enumerate(counts):
        model.add(sum(row[device_type] for row in has_type) == number)
    return has_type


def _heads_and_tails(problem: PipelineProblem, scale: _Scale) -> tuple[list[IntArray], list[IntArray]]:
    """Return, per rank in order of appearance, the least time before its first op and after its last, by p_r."""
    forward, backward, weight = (
        table.min(axis=0)
        for table in (problem.forward_s, problem.backward_input_s, problem.backward_weight_s)
    )
    fixed = least_latency(problem) + float(problem.op_overhead_s.min())
    last_op = backward if problem.split_backward else backward + weight
    ranks = range(problem.num_ranks)
    heads = [scale.floor(_prefix(forward)) + int(scale.floor(rank * fixed)) for rank in ranks]
    tails = [scale.floor(_prefix(last_op)) + int(scale.floor(rank * fixed)) for rank in ranks]
    return heads, tails


def _add_ahead(
    model: cp_model.CpModel,
    problem: PipelineProblem,
    kinds: LayerKinds,
    holds: list[list[list[cp_model.IntVar]]],
) -> list[cp_model.IntVar]:
    """Return p_r, and tie it to what the ranks up to r hold."""
    num_layers = problem.num_layers
    ahead = [
        model.new_int_var(0 if rank == 0 else rank, 0 if rank == 0 else num_layers - 1, f"ahead[{rank}]")
        for rank in range(problem.num_ranks)
    ]
    one_hot = np.zeros((num_layers + 1, len(kinds.count)), dtype=np.int64)
    one_hot[np.arange(1, num_layers + 1), kinds.of_layer] = 1
    seen = np.cumsum(one_hot, axis=0)
    for rank in range(1, problem.num_ranks):
        model.add(ahead[rank] > ahead[rank - 1])
        for kind in range(len(kinds.count)):
            before = sum(row[kind] for rows in holds[:rank] for row in rows)
            own = sum(row[kind] for row in holds[rank])
            model.add(before >= _element(model, ahead[rank], seen[:-1, kind]))
            model.add(before + own >= _element(model, ahead[rank], seen[1:, kind]))
    return ahead


def _element(model: cp_model.CpModel, index: cp_model.IntVar, values: IntArray) -> cp_model.IntVar:
    """Return a variable equal to ``values[index]``."""
    result = model.new_int_var(int(values.min()), int(values.max()), "")
    model.add_element(index, [int(value) for value in values], result)
    return result


def _prefix(seconds: FloatArray) -> FloatArray:
    """Return sums of the layers before each layer."""
    return np.concatenate([[0.0], np.cumsum(seconds)])[:-1]
