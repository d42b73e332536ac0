"""Turn the contract's documents into the dense `PipelineProblem` that solvers work on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from octoplan_schemas import Cluster, InputError, ModelGraph, Plan
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import Assignment, PipelineProblem


def build_problem(
    model: ModelGraph,
    cluster: Cluster,
    *,
    num_microbatches: int,
    split_backward: bool = True,
    max_stages_per_rank: int = 1,
    memory_limit_bytes: FloatArray | None = None,
    dynamic_limit_bytes: float = float("inf"),
) -> PipelineProblem:
    """Build the arrays once.

    Parameters
    ----------
    memory_limit_bytes:
        ``(R,)`` limit of each rank's whole peak; None: no limit.
    dynamic_limit_bytes:
        Limit of any rank's peak without its state.

    Raises
    ------
    InputError
        If a layer has no cost on a device type of the cluster, or there are more ranks than layers.
    """
    if cluster.num_ranks > len(model.layers):
        raise InputError(
            f"{cluster.num_ranks} ranks need at least as many layers, but the model has {len(model.layers)}; "
            "use fewer devices or finer layers (--granularity sublayer)",
            source=model.name,
            field="layers",
        )
    types = sorted({device.type for device in cluster.devices})
    costs = np.array([_costs_on(model, device_type) for device_type in types]).transpose(2, 0, 1)
    position = model.layer_index()
    links = cluster.link_table()
    unlimited = np.full(cluster.num_ranks, np.inf)
    return PipelineProblem(
        forward_s=np.ascontiguousarray(costs[0]),
        backward_input_s=np.ascontiguousarray(costs[1]),
        backward_weight_s=np.ascontiguousarray(costs[2]),
        rank_type=np.array([types.index(device.type) for device in cluster.devices], dtype=np.int64),
        op_overhead_s=_floats(cluster.device_types[device.type].op_overhead_s for device in cluster.devices),
        state_bytes=_floats(layer.state_bytes for layer in model.layers),
        activation_bytes=_floats(layer.activation_bytes for layer in model.layers),
        retained_bytes=_floats(layer.retained for layer in model.layers),
        weight_stash_bytes=_floats(layer.weight_stash_bytes for layer in model.layers),
        workspace_bytes=_floats(layer.workspace_bytes for layer in model.layers),
        output_bytes=_floats(layer.output_bytes for layer in model.layers),
        skip_source=np.array([position[skip.from_layer] for skip in model.skips], dtype=np.int64),
        skip_destination=np.array([position[skip.to_layer] for skip in model.skips], dtype=np.int64),
        skip_bytes=_floats(skip.bytes for skip in model.skips),
        latency_s=np.array([[float(link.latency_s) for link in row] for row in links]),
        bandwidth=np.array([[float(link.bandwidth) for link in row] for row in links]),
        num_microbatches=num_microbatches,
        split_backward=split_backward,
        max_stages_per_rank=max_stages_per_rank,
        memory_limit_bytes=unlimited if memory_limit_bytes is None else memory_limit_bytes,
        dynamic_limit_bytes=dynamic_limit_bytes,
        layer_names=tuple(layer.name for layer in model.layers),
    )


def assignment_of(plan: Plan) -> Assignment:
    """Return a plan's partition and placement."""
    return Assignment(
        tuple(stage.layers for stage in plan.stages), tuple(stage.rank for stage in plan.stages)
    )


def problem_of(plan: Plan, model: ModelGraph, cluster: Cluster) -> PipelineProblem:
    """Build the problem that a plan answers, without memory limits; refuse another model or cluster.

    Raises
    ------
    InputError
        If the plan was made for another model or cluster, or its stages or ranks do not fit them.
    """
    require_same_inputs(plan, model, cluster)
    if plan.num_ranks != cluster.num_ranks:
        raise InputError(
            f"has programs for {plan.num_ranks} ranks, but the cluster {cluster.name!r} has {cluster.num_ranks}",
            field="programs",
        )
    covered = plan.stages[-1].layers[1]
    if covered != len(model.layers):
        raise InputError(
            f"cover {covered} layers, but the model {model.name!r} has {len(model.layers)}", field="stages"
        )
    return build_problem(
        model,
        cluster,
        num_microbatches=plan.job.microbatches,
        split_backward=plan.job.backward == "split",
        max_stages_per_rank=plan.job.max_stages_per_device,
    )


def require_same_inputs(plan: Plan, model: ModelGraph | None, cluster: Cluster | None) -> list[str]:
    """Refuse another model or cluster than the plan's; return a warning for each unknown hash."""
    warnings = []
    for field, reference, document in (("model", plan.model, model), ("cluster", plan.cluster, cluster)):
        if document is None:
            continue
        if not _is_hash(reference.sha256):
            warnings.append(f"{field}.sha256 is unknown: not compared with {document.name!r}")
        elif reference.sha256 != document.sha256():
            raise InputError(
                f"the plan was made for {reference.name!r} ({reference.sha256[:12]}), not for this {field} "
                f"{document.name!r} ({document.sha256()[:12]}); give the same file or compile again",
                field=f"{field}.sha256",
            )
    return warnings


def _is_hash(text: str) -> bool:
    return len(text) == 64


def _floats(values: Iterable[float]) -> FloatArray:
    return np.array(list(values), dtype=np.float64)


def _costs_on(model: ModelGraph, device_type: str) -> list[tuple[float, float, float]]:
    """Return the three times of every layer on a device type."""
    result = []
    for index, layer in enumerate(model.layers):
        cost = layer.cost_on(device_type)
        if cost is None:
            raise InputError(
                f'layer {layer.name!r} has no cost on device type {device_type!r}; add it, or "*" for every type',
                source=model.name,
                field=f"layers.{index}.cost",
            )
        result.append((float(cost.forward_s), float(cost.backward_input_s), float(cost.backward_weight_s)))
    return result
