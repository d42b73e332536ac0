"""Lower bounds of the makespan over all partitions, placements and orders of a problem (contract, section 4.6).

Each function's docstring gives the argument. Times of a layer are taken on its fastest device type wherever its rank is
not known. Only `activation_residence` rests on the memory limits; the others hold whatever these are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.linear_solver import pywraplp

from octoplan_solvers.problem import PipelineProblem

#: Share by which floating-point bounds are lowered, so that rounding never lifts one above the truth.
SAFETY = 1e-9
#: Share of a memory limit that is rounding; more than what the check of a plan allows.
_MEMORY_SLACK = 1e-9
#: Ops of a stage and microbatch that pay the overhead at least: F and B, for a split job may fuse as well.
_OPS_WITH_OVERHEAD = 2


@dataclass(frozen=True, slots=True)
class Bound:
    """A named lower bound in seconds."""

    name: str
    seconds: float


def lower_bounds(problem: PipelineProblem) -> list[Bound]:
    """Return every bound, strongest first."""
    bounds = [
        Bound("work-per-rank", work_per_rank(problem)),
        Bound("work-and-filling", work_and_filling(problem)),
        Bound("one-microbatch", one_microbatch(problem)),
        Bound("heaviest-layer", heaviest_layer(problem)),
        Bound("activation-residence", activation_residence(problem)),
    ]
    lowered = [Bound(bound.name, bound.seconds * (1 - SAFETY)) for bound in bounds]
    return sorted(lowered, key=lambda bound: -bound.seconds)


def work_per_rank(problem: PipelineProblem) -> float:
    """All work, shared among the ranks as a linear program likes: ranks compute one op at a time.

    Minimise T where type t has n_t ranks, layer l's microbatches are split among types in shares y, and
    ``M * sum_l time[t, l] * y[t, l] + overheads <= n_t * T``. Every rank holds at least one stage, so each rank
    pays its op overhead for every op of one stage at least.
    """
    counts = np.bincount(problem.rank_type, minlength=len(problem.forward_s))
    overhead = np.bincount(problem.rank_type, weights=problem.op_overhead_s, minlength=len(counts))
    overhead = overhead * problem.num_microbatches * _OPS_WITH_OVERHEAD
    if len(counts) == 1:
        work = problem.num_microbatches * problem.layer_time_s[0].sum()
        return float((work + overhead[0]) / counts[0])
    return _fractional_load(problem, counts.astype(float), overhead)


def _fractional_load(problem: PipelineProblem, counts: np.ndarray, overhead: np.ndarray) -> float:
    solver = pywraplp.Solver.CreateSolver("GLOP")
    horizon = solver.NumVar(0, solver.infinity(), "makespan")
    share = [[solver.NumVar(0, 1, "") for _ in range(problem.num_layers)] for _ in range(len(counts))]
    for layer in range(problem.num_layers):
        solver.Add(sum(row[layer] for row in share) == 1)
    # Scaled to one microbatch and to a largest time of 1, which is where GLOP's tolerances are meant to be.
    scale = float(problem.layer_time_s.max()) or 1.0
    for kind, row in enumerate(share):
        times = problem.layer_time_s[kind] / scale
        load = sum(float(time) * variable for time, variable in zip(times, row, strict=True))
        solver.Add(
            load + float(overhead[kind]) / problem.num_microbatches / scale <= float(counts[kind]) * horizon
        )
    solver.Minimize(horizon)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return 0.0
    # GLOP stops within 1e-6 of feasibility: take that off.
    return float(solver.Objective().Value()) * (1 - 1e-6) * scale * problem.num_microbatches


def work_and_filling(problem: PipelineProblem) -> float:
    """Work of all ranks, and what they idle before their first op (with fused backward also after their last).

    Number the ranks by first appearance along the model. The k-th one's first stage begins at layer k or later,
    since each earlier rank holds a layer before it: its first op waits for one microbatch's forward through k
    layers at least, and k transfers. With only fused backwards its last op is the backward of its first stage, so
    the same number of layers' backwards follow. Summing ``T >= idle_k + work_k`` over the ranks gives T.
    With unequal device types the sum of work is not fixed, so the bound is 0.
    """
    if len(problem.forward_s) > 1:
        return 0.0
    ranks = np.arange(problem.num_ranks)
    before = np.concatenate([[0.0], np.cumsum(problem.forward_s[0])])[ranks]
    idle = before + ranks * (least_latency(problem) + problem.op_overhead_s.min())
    if not problem.split_backward:
        backward = problem.backward_input_s[0] + problem.backward_weight_s[0]
        after = np.concatenate([[0.0], np.cumsum(backward)])[ranks]
        idle = idle + after + ranks * (least_latency(problem) + problem.op_overhead_s.min())
    return work_per_rank(problem) + float(idle.sum()) / problem.num_ranks


def least_latency(problem: PipelineProblem) -> float:
    between = ~np.eye(problem.num_ranks, dtype=bool)
    return float(problem.latency_s[between].min()) if between.any() else 0.0


def one_microbatch(problem: PipelineProblem) -> float:
    """One microbatch alone: all forwards, all input backwards, then the first layer's weight backward.

    Every rank holds a stage: each pays one op overhead in each direction, and at least R - 1 stage boundaries
    cross ranks, each with one latency per direction.
    """
    chain = problem.forward_s.min(axis=0).sum() + problem.backward_input_s.min(axis=0).sum()
    last = float(problem.backward_weight_s[:, 0].min())
    overhead = 2 * problem.op_overhead_s.sum()
    transfers = 2 * (problem.num_ranks - 1) * least_latency(problem)
    return float(chain + last + overhead + transfers)


def heaviest_layer(problem: PipelineProblem) -> float:
    """Some rank runs all microbatches of the heaviest layer, between the layers before it on either way."""
    forward, backward = problem.forward_s, problem.backward_input_s
    before = np.concatenate([[0.0], np.cumsum(forward.min(axis=0))])[:-1]
    after = np.concatenate([[0.0], np.cumsum(backward.min(axis=0))])[:-1]
    count = problem.num_microbatches
    all_work = before + count * problem.layer_time_s.min(axis=0)
    # W's may be put off past the last I, which the input backwards of all earlier layers follow.
    chain_work = before + count * (forward + backward).min(axis=0) + after
    return float(np.maximum(all_work, chain_work).max())


def activation_residence(problem: PipelineProblem) -> float:
    """Bytes times seconds that activations occupy, over the bytes that all ranks have for them.

    A layer's activation is held from the start of F at least until its own input backward ends, and between the two lie
    the forwards and input backwards of every later layer, its own among them; what W frees stays for the layer's own
    W as well. Summed over layers and microbatches that is an area in the plane of bytes and seconds, and at no time
    do the ranks hold more together than their limits less all states. Where nothing limits memory the bound is 0.
    """
    room = _room_for_activations(problem)
    if not 0 < room < np.inf:
        return 0.0
    forward, backward, weight = (
        table.min(axis=0)
        for table in (problem.forward_s, problem.backward_input_s, problem.backward_weight_s)
    )
    if not problem.split_backward:
        forward, backward, weight = problem.layer_time_s.min(axis=0), 0 * backward, 0 * weight
    passes = (forward + backward)[::-1].cumsum()[::-1]
    area = problem.activation_bytes * passes + problem.retained_bytes * weight
    return float(problem.num_microbatches * area.sum() / room)


def _room_for_activations(problem: PipelineProblem) -> float:
    """Return the bytes of all ranks together beyond states, rounding included."""
    limits = problem.memory_limit_bytes * (1 + _MEMORY_SLACK)
    beyond_state = float(limits.sum()) - float(problem.state_bytes.sum())
    return min(beyond_state, problem.num_ranks * problem.dynamic_limit_bytes * (1 + _MEMORY_SLACK))
