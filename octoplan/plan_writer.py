"""From a simulated order to the plan document, and from its recorded costs back to a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from octoplan.lowering import lower
from octoplan.ordering import OrderedPlan
from octoplan.problem_builder import assignment_of
from octoplan.simulator import Simulation
from octoplan_schemas import (
    Cluster,
    EdgeCost,
    InputError,
    InputReference,
    ModelGraph,
    Plan,
    PlanJob,
    Prediction,
    Provenance,
    RankPrediction,
    Stage,
    StageCost,
)
from octoplan_solvers.bounds import Bound
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD
from octoplan_solvers.staged import StagedProblem, number_pairs


@dataclass(frozen=True)
class PlanInputs:
    """The documents and the job that a plan was compiled for."""

    model: ModelGraph
    cluster: Cluster
    job: PlanJob


def write_plan(
    inputs: PlanInputs, ordered: OrderedPlan, bound: Bound | None, provenance: dict[str, Any]
) -> Plan:
    """Assemble the document; programs are lowered here."""
    assignment = ordered.staged.assignment
    return Plan(
        format=Plan.FORMAT,
        model=InputReference(name=inputs.model.name, sha256=inputs.model.sha256()),
        cluster=InputReference(name=inputs.cluster.name, sha256=inputs.cluster.sha256()),
        job=inputs.job,
        stages=tuple(
            Stage(id=number, layers=layers, rank=rank)
            for number, (layers, rank) in enumerate(zip(assignment.boundaries, assignment.ranks, strict=True))
        ),
        programs=lower(ordered.replay),
        predicted=predict(ordered.simulation, bound),
        provenance=Provenance(**provenance),
    )


def predict(simulation: Simulation, bound: Bound | None) -> Prediction:
    """Return what the simulator says, the certificate if there is one, and the costs that it rests on."""
    makespan = simulation.makespan_s
    staged = simulation.schedule.staged
    return Prediction(
        makespan_s=makespan,
        lower_bound_s=bound.seconds if bound else None,
        gap=relative_gap(makespan, bound.seconds) if bound else None,
        bubble_fraction=simulation.bubble_fraction,
        ranks=tuple(_rank_prediction(simulation, rank) for rank in range(staged.num_ranks)),
        binding_bound=bound.name if bound else None,
        stages=tuple(_stage_cost(staged, stage) for stage in range(staged.num_stages)),
        edges=tuple(_edge_cost(staged, int(edge)) for edge in np.flatnonzero(staged.edge_crosses)),
    )


def _rank_prediction(simulation: Simulation, rank: int) -> RankPrediction:
    staged, memory = simulation.schedule.staged, simulation.memory
    limit = float(staged.memory_limit_bytes[rank])
    return RankPrediction(
        busy_s=float(simulation.busy_s[rank]),
        peak_bytes=float(memory.peak_bytes[rank]),
        state_bytes=float(staged.state_bytes[rank]),
        idle_s=max(simulation.makespan_s - float(simulation.busy_s[rank]), 0.0),
        peak_at_s=float(memory.peak_at_s[rank]),
        limit_bytes=limit if np.isfinite(limit) else None,
    )


def _stage_cost(staged: StagedProblem, stage: int) -> StageCost:
    duration = staged.duration_s[stage]
    activation = float(staged.activation_bytes[stage])
    return StageCost(
        forward_s=float(duration[FORWARD]),
        backward_input_s=float(duration[BACKWARD_INPUT]),
        backward_weight_s=float(duration[BACKWARD_WEIGHT]),
        backward_s=float(duration[BACKWARD]),
        activation_bytes=activation,
        retained_bytes=activation - float(staged.freed_at_input_bytes[stage]),
        weight_stash_bytes=float(staged.stash_bytes[stage]),
        workspace_bytes=float(staged.workspace_bytes[stage]),
    )


def _edge_cost(staged: StagedProblem, edge: int) -> EdgeCost:
    forward_s, backward_s = staged.transfer_s[edge].tolist()
    forward_latency_s, backward_latency_s = staged.latency_s[edge].tolist()
    return EdgeCost(
        from_stage=int(staged.edge_source[edge]),
        to_stage=int(staged.edge_destination[edge]),
        bytes=float(staged.edge_bytes[edge]),
        transfer_s=(forward_s, backward_s),
        latency_s=(forward_latency_s, backward_latency_s),
    )


def relative_gap(makespan_s: float, lower_bound_s: float) -> float | None:
    """Return ``makespan / bound - 1``; None if the bound is zero."""
    return makespan_s / lower_bound_s - 1.0 if lower_bound_s > 0 else None


def staged_from_plan(plan: Plan) -> StagedProblem:
    """Rebuild the staged problem from the costs that a plan records.

    Raises
    ------
    InputError
        If the plan records none, or not for all of its stages and ranks.
    """
    stages, edges = plan.predicted.stages, plan.predicted.edges
    if len(stages) != len(plan.stages) or len(plan.predicted.ranks) != plan.num_ranks:
        raise InputError(
            "the plan does not record the costs of its stages; give --model and --cluster",
            field="predicted.stages",
        )
    if any(edge.to_stage >= len(stages) or edge.from_stage >= edge.to_stage for edge in edges):
        raise InputError("an edge leads from or to a stage that is not there", field="predicted.edges")
    ranks = np.array([stage.rank for stage in plan.stages], dtype=np.int64)
    source = np.array([edge.from_stage for edge in edges], dtype=np.int64)
    destination = np.array([edge.to_stage for edge in edges], dtype=np.int64)
    ends = np.stack([ranks[source], ranks[destination]], axis=1)
    pairs, edge_pair = number_pairs(ends)
    activation = np.array([float(stage.activation_bytes) for stage in stages])
    limits = [rank.limit_bytes for rank in plan.predicted.ranks]
    return StagedProblem(
        assignment=assignment_of(plan),
        num_ranks=plan.num_ranks,
        num_microbatches=plan.job.microbatches,
        split_backward=plan.job.backward == "split",
        stage_rank=ranks,
        duration_s=np.array(
            [
                [stage.forward_s, stage.backward_input_s, stage.backward_weight_s, stage.backward_s]
                for stage in stages
            ],
            dtype=np.float64,
        ),
        activation_bytes=activation,
        freed_at_input_bytes=activation - np.array([float(stage.retained_bytes) for stage in stages]),
        stash_bytes=np.array([float(stage.weight_stash_bytes) for stage in stages]),
        workspace_bytes=np.array([float(stage.workspace_bytes) for stage in stages]),
        edge_source=source,
        edge_destination=destination,
        edge_bytes=np.array([float(edge.bytes) for edge in edges]),
        edge_crosses=ends[:, 0] != ends[:, 1],
        transfer_s=np.array([edge.transfer_s for edge in edges], dtype=np.float64).reshape(-1, 2),
        latency_s=np.array([edge.latency_s for edge in edges], dtype=np.float64).reshape(-1, 2),
        edge_pair=edge_pair,
        pairs=pairs,
        state_bytes=np.array([float(rank.state_bytes) for rank in plan.predicted.ranks]),
        memory_limit_bytes=np.array([np.inf if limit is None else float(limit) for limit in limits]),
    )
