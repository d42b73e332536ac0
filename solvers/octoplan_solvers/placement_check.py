"""Independent evaluation of a partition and placement: its makespan bound, and what forbids it.

The bound, for every order of the assignment. Each rank r computes one op at a time. Its first op waits for one
microbatch's forward through all layers ahead of its first stage; its last I or B belongs to that stage, too, and
is followed by the same microbatch's backward through the layers ahead, after which the model's first layer has its
W left. `crossings` are the places ahead of r's first stage, its own arrival included, at which the rank changes: each
takes one transfer (over the fastest link: which one is used is another matter) and the overhead of one op.

    head  = forward(ahead) + crossings            tail = backward(ahead) + crossings  [+ W of layer 0 if split]
    split: makespan >= head + overheads + M * (F + I + W)
           makespan >= head + overheads + M * (F + I) + tail
    fused: makespan >= head + overheads + M * (F + B) + tail

And one microbatch alone: all layers forward and backward with every crossing twice, or short-cut through a skip
whose two ends are on different ranks. A split job may use B, so two ops of a stage and microbatch pay overhead.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from octoplan_solvers.constraints import layer_ranks
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import Assignment, PipelineProblem

#: Share of a limit within which two sums of bytes count as equal.
_TOLERANCE = 1e-9


def assignment_bound(problem: PipelineProblem, assignment: Assignment) -> float:
    """Return a lower bound in seconds of the makespan of every order of an assignment.

    It is the objective of the CP-SAT and MILP models, computed from the stages alone.
    """
    rank_of = layer_ranks(assignment)
    per_rank = (_rank_bound(problem, assignment, rank_of, rank) for rank in sorted(set(rank_of)))
    return max(*per_rank, _one_microbatch(problem, rank_of), 0.0)


def check_assignment(problem: PipelineProblem, assignment: Assignment) -> list[str]:
    """Return what forbids an assignment: its structure, memory of one microbatch, or a declared constraint.

    Parameters
    ----------
    assignment:
        Stages in model order.

    Returns
    -------
    list of str
        One line for each fault; none if the assignment is allowed. What an order holds beyond the activations of
        one microbatch is not counted, so a plan may still not fit.
    """
    faults = _structure_faults(problem, assignment)
    if faults:
        return faults
    return [
        *_memory_faults(problem, assignment),
        *problem.constraints.violations(assignment, problem.layer_names),
    ]


def _rank_bound(problem: PipelineProblem, assignment: Assignment, rank_of: list[int], rank: int) -> float:
    kind = int(problem.rank_type[rank])
    own = [layer for layer, other in enumerate(rank_of) if other == rank]
    forward = sum(float(problem.forward_s[kind, layer]) for layer in own)
    backward = sum(float(problem.backward_input_s[kind, layer]) for layer in own)
    weight = sum(float(problem.backward_weight_s[kind, layer]) for layer in own)
    overheads = 2 * assignment.ranks.count(rank) * float(problem.op_overhead_s[rank])
    ahead = range(own[0])
    crossings = _crossings(problem, rank_of, 0, own[0])
    count = problem.num_microbatches
    head = _sum_on(problem, problem.forward_s, rank_of, ahead) + crossings
    tail = _sum_on(problem, problem.backward_input_s, rank_of, ahead) + crossings
    if not problem.split_backward:
        tail += _sum_on(problem, problem.backward_weight_s, rank_of, ahead)
        return head + count * (overheads + forward + backward + weight) + tail
    tail += _sum_on(problem, problem.backward_weight_s, rank_of, ahead[:1])
    return head + count * (overheads + forward + backward) + max(count * weight, tail)


def _one_microbatch(problem: PipelineProblem, rank_of: list[int]) -> float:
    num_layers = problem.num_layers
    paths = [_path(problem, rank_of, num_layers - 1, num_layers, 0.0)]
    skips = zip(problem.skip_source, problem.skip_destination, problem.skip_bytes, strict=True)
    for source, destination, size in skips:
        if rank_of[source] != rank_of[destination]:
            paths.append(
                _path(problem, rank_of, int(source), int(destination), least_transfer(problem, float(size)))
            )
    return max(paths)


def _path(
    problem: PipelineProblem, rank_of: list[int], source: int, destination: int, skip_s: float
) -> float:
    """Layers up to ``source``, a skip, layers from ``destination`` on; and all of that back again."""
    layers = [*range(source + 1), *range(destination, problem.num_layers)]
    there = _sum_on(problem, problem.forward_s, rank_of, layers)
    back = _sum_on(problem, problem.backward_input_s, rank_of, layers)
    weights = layers if not problem.split_backward else [0]
    back += _sum_on(problem, problem.backward_weight_s, rank_of, weights)
    crossings = _crossings(problem, rank_of, 0, source) + _crossings(
        problem, rank_of, destination, problem.num_layers - 1
    )
    return there + back + 2 * (crossings + skip_s + float(problem.op_overhead_s.min()))


def _sum_on(
    problem: PipelineProblem, table: np.ndarray, rank_of: list[int], layers: list[int] | range
) -> float:
    return sum(float(table[problem.rank_type[rank_of[layer]], layer]) for layer in layers)


def _crossings(problem: PipelineProblem, rank_of: list[int], first: int, last: int) -> float:
    """Seconds of the changes of rank between neighbouring layers among ``first`` to ``last``, one way."""
    total = 0.0
    for layer in range(first + 1, last + 1):
        if rank_of[layer] != rank_of[layer - 1]:
            size = float(problem.output_bytes[layer - 1])
            total += least_transfer(problem, size) + float(problem.op_overhead_s.min())
    return total


def least_transfer(problem: PipelineProblem, size_bytes: float) -> float:
    """Return the seconds that a tensor takes between two ranks at least."""
    between = ~np.eye(problem.num_ranks, dtype=bool)
    if not between.any():
        return 0.0
    return float((size_bytes / problem.bandwidth[between] + problem.latency_s[between]).min())


def surely_held_bytes(problem: PipelineProblem) -> FloatArray:
    """Return ``(L,)`` activations of one microbatch that a rank holds all together for some time.

    From the start of F of its last stage to the end of that stage's I or B, a rank holds one microbatch's activations
    of all its layers. That time is not zero if an op takes time in these layers or behind them. So layers at the
    end of the model that some device type runs in no time are left out.
    """
    held = problem.activation_bytes.copy()
    if not float(problem.op_overhead_s.min()) > 0:
        takes_time = (problem.forward_s + problem.backward_input_s).min(axis=0) > 0
        held[problem.num_layers - int(np.argmax(takes_time[::-1])) if takes_time.any() else 0 :] = 0.0
    return held


def _structure_faults(problem: PipelineProblem, assignment: Assignment) -> list[str]:
    boundaries = assignment.boundaries
    if len(boundaries) != len(assignment.ranks):
        return [f"{len(boundaries)} stages, but {len(assignment.ranks)} ranks"]
    joined = all(left[1] == right[0] for left, right in pairwise(boundaries))
    if not joined or boundaries[0][0] != 0 or boundaries[-1][1] != problem.num_layers:
        return [f"stages {boundaries} do not cover {problem.num_layers} layers in order"]
    if any(first >= end for first, end in boundaries):
        return [f"a stage of {boundaries} is empty"]
    if not all(0 <= rank < problem.num_ranks for rank in assignment.ranks):
        return [f"ranks {assignment.ranks} are not all below {problem.num_ranks}"]
    faults = []
    for rank, count in enumerate(np.bincount(assignment.ranks, minlength=problem.num_ranks).tolist()):
        if not 1 <= count <= problem.max_stages_per_rank:
            faults.append(f"rank {rank} holds {count} stages, not 1 to {problem.max_stages_per_rank}")
    return faults


def _memory_faults(problem: PipelineProblem, assignment: Assignment) -> list[str]:
    faults = []
    rank_of = np.array(layer_ranks(assignment))
    held = surely_held_bytes(problem)
    for rank in range(problem.num_ranks):
        own = rank_of == rank
        activations = float(held[own].sum())
        whole = float(problem.state_bytes[own].sum()) + activations
        for need, limit, what in (
            (whole, float(problem.memory_limit_bytes[rank]), "state and one microbatch"),
            (activations, problem.dynamic_limit_bytes, "one microbatch"),
        ):
            if need > limit * (1 + _TOLERANCE):
                faults.append(f"rank {rank} needs {need:,.0f} bytes for {what}, more than {limit:,.0f}")
    return faults
