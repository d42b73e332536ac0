"""`check` and `simulate` for plan documents: the whole contract, memory included."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from octoplan.compiler import balanced_1f1b_dynamic_peak, device_limits
from octoplan.lowering import read_schedule
from octoplan.memory_limit import MemoryLimit
from octoplan.ordering import excess_bytes
from octoplan.plan_writer import predict, relative_gap, staged_from_plan
from octoplan.problem_builder import assignment_of, problem_of, require_same_inputs
from octoplan.simulator import Simulation, simulate_schedule
from octoplan_schemas import (
    Cluster,
    Finding,
    InputError,
    ModelGraph,
    Plan,
    Prediction,
    ProgramIndex,
    check_plan,
    stage_edges,
)
from octoplan_solvers.staged import StagedProblem, build_staged

#: Relative difference from which a recorded prediction counts as wrong.
PREDICTION_TOLERANCE = 1e-9


def check(plan: Plan, model: ModelGraph | None = None, cluster: Cluster | None = None) -> list[Finding]:
    """Decide whether a plan is complete, ordered, first-in-first-out, deadlock-free and within memory.

    Parameters
    ----------
    model, cluster:
        With both, memory is checked and the recorded prediction compared; with the model alone, its skip edges.

    Returns
    -------
    list of Finding
        Empty if the plan is valid.

    Raises
    ------
    InputError
        If the plan was made for another model or cluster.
    """
    require_same_inputs(plan, model, cluster)
    findings, index = _check_programs(plan, None if model is None else _edges(plan, model))
    if findings or model is None or cluster is None:
        return findings
    simulation = simulate_schedule(read_schedule(plan, _staged(plan, model, cluster), index))
    return [*_memory_findings(simulation), *_prediction_findings(plan.predicted, simulation)]


def simulate(plan: Plan, model: ModelGraph | None = None, cluster: Cluster | None = None) -> Simulation:
    """Simulate a plan from its programs alone.

    Without model and cluster the costs that the plan records are used.

    Raises
    ------
    InputError
        If the plan is not valid, or was made for another model or cluster.
    """
    if model is None or cluster is None:
        staged = staged_from_plan(plan)
        edges = list(zip(staged.edge_source.tolist(), staged.edge_destination.tolist(), strict=True))
    else:
        staged = _staged(plan, model, cluster)
        edges = _edges(plan, model)
    findings, index = _check_programs(plan, edges)
    if findings:
        raise InputError(str(findings[0]))
    return simulate_schedule(read_schedule(plan, staged, index))


def checked_programs(plan: Plan, model: ModelGraph | None = None) -> ProgramIndex:
    """Return the parsed programs of a plan that passes the check; memory is not looked at.

    Raises
    ------
    InputError
        If the plan is not valid.
    """
    findings, index = _check_programs(plan, None if model is None else _edges(plan, model))
    if findings or index is None:
        raise InputError(str(findings[0]))
    return index


def predict_again(plan: Plan, simulation: Simulation) -> Prediction:
    """Return the prediction of a fresh simulation; the bound is the plan's own, for it is not recomputed."""
    fresh = predict(simulation, None)
    bound = plan.predicted.lower_bound_s
    gap = None if bound is None else relative_gap(fresh.makespan_s, bound)
    return fresh.model_copy(
        update={"lower_bound_s": bound, "gap": gap, "binding_bound": plan.predicted.binding_bound}
    )


def is_feasible(simulation: Simulation) -> bool:
    """True if no rank's peak exceeds its limit."""
    return not excess_bytes(simulation).any()


def _edges(plan: Plan, model: ModelGraph) -> list[tuple[int, int]]:
    """Return the stage pairs that exchange tensors, if the stages are sound; the check complains if not."""
    if plan.stages[-1].layers[1] != len(model.layers):
        raise InputError(
            f"cover {plan.stages[-1].layers[1]} layers, but the model {model.name!r} has {len(model.layers)}",
            field="stages",
        )
    position = model.layer_index()
    skips = [(position[skip.from_layer], position[skip.to_layer]) for skip in model.skips]
    bounds = [stage.layers for stage in plan.stages]
    contiguous = all(first[1] == second[0] for first, second in pairwise(bounds))
    return stage_edges(bounds, skips) if contiguous and bounds[0][0] == 0 else []


def _staged(plan: Plan, model: ModelGraph, cluster: Cluster) -> StagedProblem:
    """Build the staged problem with the limits that the plan was compiled under."""
    problem = problem_of(plan, model, cluster)
    limit = MemoryLimit.parse(plan.job.memory_limit)
    if limit.kind == "1f1b":
        dynamic = limit.value * balanced_1f1b_dynamic_peak(problem, model)
        problem = replace(problem, dynamic_limit_bytes=dynamic)
    else:
        problem = replace(problem, memory_limit_bytes=device_limits(cluster, limit))
    return build_staged(problem, assignment_of(plan))


def _check_programs(
    plan: Plan, edges: list[tuple[int, int]] | None
) -> tuple[list[Finding], ProgramIndex | None]:
    """Parse the programs once, check them, and hand the parsed ones over."""
    try:
        index = ProgramIndex.of(plan)
    except InputError as error:
        return [Finding("structure", str(error))], None
    return check_plan(plan, edges, index=index), index


def _memory_findings(simulation: Simulation) -> list[Finding]:
    excess = excess_bytes(simulation)
    memory = simulation.memory
    limits = simulation.schedule.staged.memory_limit_bytes
    return [
        Finding(
            "memory",
            f"rank {rank} peaks at {memory.peak_bytes[rank]:,.0f} bytes at {memory.peak_at_s[rank]:.6g} s, "
            f"{excess[rank]:,.0f} more than its limit of {limits[rank]:,.0f}",
        )
        for rank in np.flatnonzero(excess)
    ]


def _prediction_findings(predicted: Prediction, simulation: Simulation) -> list[Finding]:
    """Compare what the plan claims with a fresh simulation."""
    found = []
    makespan = simulation.makespan_s
    if abs(predicted.makespan_s - makespan) > PREDICTION_TOLERANCE * makespan:
        found.append(f"predicted.makespan_s: {predicted.makespan_s!r} should be {makespan!r}")
    bound = predicted.lower_bound_s
    if bound is not None and bound > makespan * (1 + PREDICTION_TOLERANCE):
        found.append(f"predicted.lower_bound_s: {bound!r} is above the makespan {makespan!r}")
    for rank, entry in enumerate(predicted.ranks[: len(simulation.busy_s)]):
        peak = float(simulation.memory.peak_bytes[rank])
        if abs(entry.peak_bytes - peak) > PREDICTION_TOLERANCE * max(peak, 1.0):
            found.append(f"predicted.ranks.{rank}.peak_bytes: {entry.peak_bytes!r} should be {peak!r}")
    return [Finding("prediction", message) for message in found]
