"""Where a plan's time goes: idle time by cause, critical path, memory, links, and the bounds with their reasons."""

from __future__ import annotations

import numpy as np

from octoplan.explain.explanation import (
    BoundNote,
    CriticalPath,
    Diagnosis,
    HeaviestLayer,
    LinkUse,
    RankMemory,
)
from octoplan.simulator import BubbleReport, Cause, Simulation, attribute_bubbles
from octoplan_solvers.bounds import Bound, lower_bounds
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import PipelineProblem

_BECAUSE = {
    "work-per-rank": "all work, shared evenly among the ranks",
    "work-and-filling": "all work, shared evenly, and what the ranks idle before their first op",
    "one-microbatch": "one microbatch through all layers and back, with its transfers",
    "layer-kinds": "whole layers cannot be shared evenly among the ranks",
    "benders": "every placement was priced with its best order, as far as the search came",
    "activation-residence": "activations stay this long at the least, in the memory beyond states",
}


def diagnose(
    problem: PipelineProblem, simulation: Simulation, bound: Bound, *, recorded: Bound | None = None
) -> Diagnosis:
    """Say where the time of a plan goes.

    Parameters
    ----------
    problem:
        With the plan's limits.
    bound:
        The strongest bound computed; the formulas' are added.
    recorded:
        The bound that the plan claims; it is of use where it is stronger, for its search took longer.
    """
    bubbles = attribute_bubbles(simulation)
    return Diagnosis(
        makespan_s=simulation.makespan_s,
        bubble_fraction=simulation.bubble_fraction,
        bubbles=bubbles,
        bounds=_bounds(problem, bound, recorded, simulation.makespan_s),
        critical_path=_critical_path(simulation),
        memory=_memory(bubbles),
        links=_links(bubbles),
        heaviest_layer=heaviest_layer(problem),
    )


def heaviest_layer(problem: PipelineProblem) -> HeaviestLayer:
    """Return the layer with the most work on its fastest device."""
    seconds = problem.layer_time_s.min(axis=0)
    layer = int(np.argmax(seconds))
    name = problem.layer_names[layer] if problem.layer_names else f"layer {layer}"
    return HeaviestLayer(name, float(seconds[layer]), float(seconds[layer]) * problem.num_microbatches)


def _bounds(
    problem: PipelineProblem, computed: Bound, recorded: Bound | None, makespan_s: float
) -> tuple[BoundNote, ...]:
    seconds = {bound.name: bound.seconds for bound in lower_bounds(problem)}
    for bound in (computed, recorded):
        if bound is not None and bound.seconds <= makespan_s:
            seconds[bound.name] = max(bound.seconds, seconds.get(bound.name, 0.0))
    ranked = sorted(seconds.items(), key=lambda entry: -entry[1])
    return tuple(BoundNote(name, value, _because(name, problem)) for name, value in ranked)


def _because(name: str, problem: PipelineProblem) -> str:
    if name == "heaviest-layer":
        return f"one rank runs every microbatch of {heaviest_layer(problem).name}"
    if name.endswith("-placement"):
        return "load, filling and transfers of the best partition and placement"
    return _BECAUSE.get(name, name)


def _critical_path(simulation: Simulation) -> CriticalPath:
    schedule = simulation.schedule
    nodes = np.array(simulation.critical_path(), dtype=np.int64)
    ops = nodes[nodes < len(schedule.order.ops)]
    messages = nodes[nodes >= len(schedule.order.ops)] - len(schedule.order.ops)
    rank = np.searchsorted(schedule.order.rank_begin, ops, side="right") - 1
    compute = np.bincount(
        rank, simulation.end_s[ops] - simulation.start_s[ops], minlength=schedule.order.num_ranks
    )
    makespan = simulation.makespan_s
    return CriticalPath(tuple(compute.tolist()), makespan - float(compute.sum()) if len(messages) else 0.0)


def _memory(bubbles: BubbleReport) -> tuple[RankMemory, ...]:
    simulation = bubbles.simulation
    limits = simulation.schedule.staged.memory_limit_bytes
    waiting = bubbles.by_cause_s[:, list(Cause).index(Cause.MEMORY)]
    return tuple(
        RankMemory(rank, float(peak), float(limit) if np.isfinite(limit) else None, float(idle))
        for rank, (peak, limit, idle) in enumerate(
            zip(simulation.memory.peak_bytes, limits, waiting, strict=True)
        )
    )


def _links(bubbles: BubbleReport) -> tuple[LinkUse, ...]:
    """Return every pair that carries messages; idle time until a transfer arrives is its pair's."""
    schedule = bubbles.simulation.schedule
    staged = schedule.staged
    pair, busy = _message_pairs(bubbles.simulation)
    late = bubbles.cause == list(Cause).index(Cause.TRANSFER)
    culprits = bubbles.culprit[late] - len(schedule.order.ops)
    waited = np.bincount(pair[culprits], (bubbles.end_s - bubbles.start_s)[late], minlength=len(staged.pairs))
    in_use = np.bincount(pair, busy, minlength=len(staged.pairs))
    links = [
        LinkUse(int(source), int(destination), float(in_use[index]), float(waited[index]))
        for index, (source, destination) in enumerate(staged.pairs)
    ]
    return tuple(sorted(links, key=lambda link: (-link.waiting_s, -link.busy_s)))


def _message_pairs(simulation: Simulation) -> tuple[IntArray, FloatArray]:
    """Return ``(Q,)`` rank pair of every message, and seconds that it keeps the pair busy."""
    staged = simulation.schedule.staged
    edge, direction = np.divmod(simulation.schedule.messages // staged.num_microbatches, 2)
    return staged.edge_pair[edge, direction], staged.transfer_s[edge, direction]
