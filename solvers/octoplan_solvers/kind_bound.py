"""A lower bound from counting layers by kind: which numbers of each kind a rank holds, contiguity dropped.

Published models repeat a few kinds of layers, and a rank's work is a sum of whole layers: with few ranks per layer no
split of the work is even. Number the ranks by first appearance along the model. Let p_r be the number of layers ahead
of the r-th one's first layer: the ranks before it hold all of them, and with that layer its own rank is among those
that do. One microbatch's forward through them, r transfers and r op overheads precede its first op; on the way back as
much follows its last I or B. So, with work_r the sum over the kinds that it holds,

    split:  makespan >= head_r + M * work_r    and    makespan >= head_r + M * (F + I)_r + tail_r
    fused:  makespan >= head_r + M * work_r + tail_r

for every r. CP-SAT minimises the largest of these; its bound at any time is a bound of the makespan. It holds for ranks
of one device type, whose order of appearance does not matter.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.bounds import least_latency
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.stopping import stopped_by

#: Integer units in the work of one rank.
_RESOLUTION = 1_000_000
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
        """Group the layers of a problem with one device type."""
        times = np.stack([problem.forward_s[0], problem.backward_input_s[0], problem.backward_weight_s[0]])
        _, example, of_layer, count = np.unique(
            times, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(of_layer.reshape(-1), example, count)


def applies(problem: PipelineProblem) -> bool:
    """True if the bound is valid for the problem and worth its time."""
    return len(problem.forward_s) == 1 and len(LayerKinds.of(problem).count) <= MOST_KINDS


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
    model = cp_model.CpModel()
    unit_s = _add_model(model, problem)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = num_workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    if deterministic:
        solver.parameters.max_deterministic_time = time_limit_s
    else:
        solver.parameters.max_time_in_seconds = time_limit_s
    with stopped_by(solver, stop):
        status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        return 0.0
    return max(float(solver.best_objective_bound), 0.0) * unit_s


def _add_model(model: cp_model.CpModel, problem: PipelineProblem) -> float:
    """State the model; return the seconds of one integer unit."""
    kinds = LayerKinds.of(problem)
    num_ranks, count = problem.num_ranks, problem.num_microbatches
    forward, backward, weight = (
        table[0] for table in (problem.forward_s, problem.backward_input_s, problem.backward_weight_s)
    )
    unit_s = max(count * float((forward + backward + weight).sum()) / num_ranks, 1e-12) / _RESOLUTION
    overhead = float(problem.op_overhead_s.min())

    def floor(seconds: FloatArray | float) -> IntArray:
        return np.floor(np.asarray(seconds) / unit_s * (1 - 1e-12)).astype(np.int64)

    holds = [
        [
            model.new_int_var(0, int(number), f"holds[{rank},{kind}]")
            for kind, number in enumerate(kinds.count)
        ]
        for rank in range(num_ranks)
    ]
    for kind, number in enumerate(kinds.count):
        model.add(sum(row[kind] for row in holds) == int(number))
    ahead = _add_ahead(model, problem, kinds, holds)
    fused_backward = backward if problem.split_backward else backward + weight
    work = floor(count * (forward + backward + weight)[kinds.example]).tolist()
    chain_work = floor(count * (forward + backward)[kinds.example]).tolist()
    makespan = model.new_int_var(0, 100 * num_ranks * _RESOLUTION, "makespan")
    for rank in range(num_ranks):
        fixed = int(floor(rank * (least_latency(problem) + overhead)))
        ops = int(floor(2 * count * float(problem.op_overhead_s.min())))
        head = fixed + _element(model, ahead[rank], floor(_prefix(forward)))
        tail = fixed + _element(model, ahead[rank], floor(_prefix(fused_backward)))
        own = cp_model.LinearExpr.weighted_sum(holds[rank], work) + ops
        if problem.split_backward:
            chain = cp_model.LinearExpr.weighted_sum(holds[rank], chain_work) + ops
            model.add(makespan >= head + own)
            model.add(makespan >= head + chain + tail)
        else:
            model.add(makespan >= head + own + tail)
    model.minimize(makespan)
    return unit_s


def _add_ahead(
    model: cp_model.CpModel, problem: PipelineProblem, kinds: LayerKinds, holds: list[list[cp_model.IntVar]]
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
            before = sum(row[kind] for row in holds[:rank])
            model.add(before >= _element(model, ahead[rank], seen[:-1, kind]))
            model.add(before + holds[rank][kind] >= _element(model, ahead[rank], seen[1:, kind]))
    return ahead


def _element(model: cp_model.CpModel, index: cp_model.IntVar, values: IntArray) -> cp_model.IntVar:
    """Return a variable equal to ``values[index]``."""
    result = model.new_int_var(int(values.min()), int(values.max()), "")
    model.add_element(index, [int(value) for value in values], result)
    return result


def _prefix(seconds: FloatArray) -> FloatArray:
    """Return sums of the layers before each layer."""
    return np.concatenate([[0.0], np.cumsum(seconds)])[:-1]
