"""What the options name: the plan, the model and the workload, read and checked against each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from octoplan_runtime.emulation.costs import EmulatedCosts, MachineCosts
from octoplan_runtime.emulation.workload import emulated_workload
from octoplan_runtime.miniature import build_miniature
from octoplan_runtime.options import RunOptions
from octoplan_runtime.workload import Workload, import_workload
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan, load, require_valid, stage_edges

_UNKNOWN_HASHES = ("", "...")


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A plan and what it trains, checked against each other."""

    plan: Plan
    workload: Workload
    #: What the emulated devices sleep; None to compute for real.
    costs: EmulatedCosts | None = None
    #: What this machine adds to them.
    machine: MachineCosts = field(default_factory=MachineCosts)

    @property
    def model_is_unknown(self) -> bool:
        """Whether the plan does not say which model it was made for, so that nothing could be compared."""
        return self.plan.model.sha256 in _UNKNOWN_HASHES


def prepare(options: RunOptions) -> PreparedRun:
    """Read and check everything that can be checked without other ranks.

    Raises
    ------
    InputError
        If a file cannot be read, the plan is not valid or was made for another model, or nothing says what
        to train.
    """
    _require_sense(options)
    plan = load(options.plan, Plan)
    # First by itself: what follows relies on stages that cover the layers.
    require_valid(plan, source=options.plan)
    if options.emulate or options.calibrate is not None:
        return _prepare_emulation(plan, options)
    model = load(options.model, ModelGraph) if options.model else None
    if model is not None:
        _require_same_model(plan, model, options)
    workload = _workload(plan, model, options)
    edges = stage_edges([stage.layers for stage in plan.stages], workload.skips)
    require_valid(plan, edges, source=options.plan)
    return PreparedRun(plan, workload)


def _require_sense(options: RunOptions) -> None:
    if options.steps < 1:
        raise InputError(f"--steps: {options.steps} must be at least 1")
    if options.autocast is not None and options.dtype != "float32":
        raise InputError(f"--autocast: needs --dtype float32, not {options.dtype}; leave one of them out")
    if not options.timeout_s > 0:
        raise InputError(f"--timeout: {options.timeout_s:g} must be above 0 seconds")
    for name, path in (("--trace", options.trace), ("--calibrate", options.calibrate)):
        if path is not None and not Path(path).resolve().parent.is_dir():
            raise InputError(f"{name}: {path} cannot be written: its folder does not exist")


def _prepare_emulation(plan: Plan, options: RunOptions) -> PreparedRun:
    """No model is needed: the plan records what its stages cost, and the layers only wait."""
    for flag, is_given in (("--verify", options.verify), ("--layers", options.layers is not None)):
        if is_given:
            raise InputError(f"{flag}: emulated devices compute nothing; leave out {flag} or --emulate")
    workload = emulated_workload(plan)
    edges = stage_edges([stage.layers for stage in plan.stages], workload.skips)
    require_valid(plan, edges, source=options.plan)
    if options.calibrate is not None:
        return PreparedRun(plan, workload)
    try:
        costs = EmulatedCosts.of(plan, options.scale)
    except InputError as error:
        raise error.in_source(options.plan) from None
    cluster = load(options.cluster, Cluster) if options.cluster is not None else None
    return PreparedRun(plan, workload, costs, MachineCosts.of(cluster, plan))


def _require_same_model(plan: Plan, model: ModelGraph, options: RunOptions) -> None:
    num_layers = plan.stages[-1].layers[1]
    if plan.model.sha256 not in (*_UNKNOWN_HASHES, model.sha256()):
        raise InputError(
            f"the plan was made for {plan.model.name!r} of hash {plan.model.sha256[:12]}, but "
            f"{options.model} has {model.sha256()[:12]}; compile a plan for this model, or give the one "
            "that the plan was compiled from",
            source=options.plan,
            field="model.sha256",
        )
    if num_layers != len(model.layers):
        raise InputError(
            f"the plan has {num_layers} layers, but {options.model} has {len(model.layers)}",
            source=options.plan,
            field="stages",
        )


def _workload(plan: Plan, model: ModelGraph | None, options: RunOptions) -> Workload:
    if options.layers is not None:
        workload = import_workload(options.layers)
    elif model is not None:
        workload = build_miniature(model, plan.job.microbatches, seed=options.seed)
    else:
        raise InputError(
            "nothing says what to train: give --model for a miniature of it, or --layers MODULE:FUNCTION"
        )
    num_layers = plan.stages[-1].layers[1]
    if workload.num_layers != num_layers:
        raise InputError(
            f"--layers: {workload.num_layers} layers, but the plan has {num_layers}", source=options.plan
        )
    return workload
