"""`compile_plan`: model and cluster in, plan out."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from octoplan.baseline_plans import baseline_problem, run_baseline
from octoplan.baselines import Strategy, parse_strategy
from octoplan.certificate import Certificate, strongest_formula
from octoplan.compile_options import CompileOptions, Progress, check_compile_options
from octoplan.errors import InfeasibleError
from octoplan.job_constraints import placement_constraints
from octoplan.memory_limit import MemoryLimit
from octoplan.optimise import Optimised, optimise
from octoplan.plan_policy import policy_entry
from octoplan.plan_writer import PlanInputs, write_plan
from octoplan.problem_builder import build_problem
from octoplan.proof import PROOF_NAME, PROOF_SOLVER, is_small
from octoplan.proof import warm_up as warm_up_proof
from octoplan.targets import Target, get_target
from octoplan.tuner import warm_up
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan, PlanJob
from octoplan_solvers import registry
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import PipelineProblem


def compile_plan(model: ModelGraph, cluster: Cluster, options: CompileOptions) -> Plan:
    """Compile a plan.

    Raises
    ------
    InputError
        If the inputs or options make no sense.
    InfeasibleError
        If no plan fits into memory, or the baseline asked for does not.
    """
    check_compile_options(options)
    strategy = parse_strategy(options.strategy)
    problem = limited_problem(model, cluster, options)
    if strategy.is_baseline:
        started = time.monotonic()
        found = _compile_baseline(problem, model, strategy, get_target(options.target))
        problem = baseline_problem(problem, strategy)
    else:
        load_kernels(options, problem)
        started = time.monotonic()
        found = optimise(problem, model, options, started=started)
    return plan_of(model, cluster, options, problem, found, time.monotonic() - started)


def load_kernels(options: CompileOptions, problem: PipelineProblem) -> None:
    """Load the search's kernels, which time limits do not count; the first run on a machine compiles them."""
    options.on_progress(Progress("loading kernels (the first run on a machine compiles them)"))
    warm_up()
    if is_small(problem):
        warm_up_proof(problem)


def plan_of(
    model: ModelGraph,
    cluster: Cluster,
    options: CompileOptions,
    problem: PipelineProblem,
    found: Optimised,
    seconds: float,
) -> Plan:
    """Write an outcome down as a plan for the job that the options describe."""
    job = PlanJob(
        microbatches=options.microbatches,
        backward="split" if problem.split_backward else "fused",
        max_stages_per_device=problem.max_stages_per_rank,
        memory_limit=recorded_limit(options.memory_limit),
    )
    inputs = PlanInputs(model, cluster, job)
    return write_plan(inputs, found.plan, found.certificate.bound, _provenance(options, found, seconds))


def emit_model(model: ModelGraph, cluster: Cluster, options: CompileOptions, path: str | Path) -> None:
    """Write the partition and placement model of a job: ``.mps`` or ``.lp`` (MILP), ``.pb.txt`` (CP-SAT).

    Raises
    ------
    InputError
        If the name ends otherwise, or the file cannot be written.
    """
    check_compile_options(options)
    try:
        registry.emit_model(limited_problem(model, cluster, options), path)
    except ValueError as error:
        raise InputError(str(error), source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None


def limited_problem(model: ModelGraph, cluster: Cluster, options: CompileOptions) -> PipelineProblem:
    """Build the problem with the memory limit that the options ask for."""
    problem = build_problem(
        model,
        cluster,
        num_microbatches=options.microbatches,
        split_backward=options.backward == "split",
        max_stages_per_rank=options.max_stages_per_device,
    )
    constraints = placement_constraints(
        options.constraints,
        problem.layer_names,
        num_ranks=problem.num_ranks,
        max_stages_per_rank=options.max_stages_per_device,
    )
    problem = get_target(options.target).restrict(replace(problem, constraints=constraints), model)
    limit = MemoryLimit.parse(options.memory_limit)
    if limit.kind == "1f1b":
        return replace(problem, dynamic_limit_bytes=limit.value * balanced_1f1b_dynamic_peak(problem, model))
    return replace(problem, memory_limit_bytes=device_limits(cluster, limit))


def device_limits(cluster: Cluster, limit: MemoryLimit) -> FloatArray:
    """Return ``(R,)`` bytes that a limit allows each rank's whole peak; ``1f1b`` limits are not of this kind."""
    memory = np.array([float(cluster.device_types[device.type].memory_bytes) for device in cluster.devices])
    if limit.kind == "share":
        return memory * limit.value
    if limit.kind == "bytes":
        return np.full(len(memory), limit.value)
    return np.full(len(memory), np.inf)


def balanced_1f1b_dynamic_peak(problem: PipelineProblem, model: ModelGraph) -> float:
    """Return the largest peak without state, over the ranks, of the ``1f1b:balanced`` plan."""
    simulation = run_baseline(problem, model, Strategy("1f1b", "balanced")).simulation
    return float((simulation.memory.peak_bytes - simulation.schedule.staged.state_bytes).max())


def _compile_baseline(
    problem: PipelineProblem, model: ModelGraph, strategy: Strategy, target: Target
) -> Optimised:
    if not target.admits(strategy, problem):
        raise InfeasibleError(f"{target.name} does not run {strategy}; leave the strategy or the target out")
    ordered = run_baseline(problem, model, strategy)
    ordered = target.as_run(ordered) or ordered
    excess = ordered.excess_bytes()
    if excess.any():
        rank = int(np.argmax(excess))
        raise InfeasibleError(
            f"{strategy} does not fit: rank {rank} peaks at {ordered.simulation.memory.peak_bytes[rank]:,.0f} bytes, "
            f"{excess[rank]:,.0f} more than its limit of {ordered.staged.memory_limit_bytes[rank]:,.0f}; "
            "raise --memory-limit, or take another strategy"
        )
    broken = problem.constraints.violations(ordered.staged.assignment, problem.layer_names)
    if problem.constraints.max_in_flight:
        broken.append("max_in_flight: a published order does not look at it")
    if broken:
        raise InfeasibleError(
            f"{strategy} does not keep the constraints: {broken[0]}; use --strategy octoplan"
        )
    bound = strongest_formula(baseline_problem(problem, strategy))
    return Optimised(ordered, Certificate(bound, None))


def recorded_limit(limit: str | float | None) -> str | float | None:
    """Return the limit as the plan's job records it: None for none, a number for bytes, else the text."""
    parsed = MemoryLimit.parse(limit)
    if parsed.kind == "none":
        return None
    return parsed.value if parsed.kind == "bytes" else str(limit)


def _provenance(options: CompileOptions, found: Optimised, seconds: float) -> dict[str, Any]:
    """Return strategy, versions, seed and time; without seconds where the plan must be reproducible."""
    strategy = parse_strategy(options.strategy)
    entry: dict[str, Any] = {"strategy": str(strategy), "octoplan": version("octoplan"), "seed": options.seed}
    if options.target != Target.name:
        entry["target"] = options.target
    if strategy.is_baseline:
        return entry
    names = [options.solver]
    if found.certificate.bound.name == PROOF_NAME and options.solver != PROOF_SOLVER:
        names.append(PROOF_SOLVER)
    entry["solvers"] = {name: _solver_version(name) for name in names}
    master = found.certificate.master
    if master is not None:
        entry["master"] = {"status": master.status}
    entry["trace"] = [[round(at, 4), dimension, makespan] for at, dimension, makespan in found.trace.entries]
    if found.candidate is not None:
        entry["policy"] = policy_entry(found.candidate)
    if options.should_stop():
        entry["interrupted"] = True
    if options.max_evaluations is None:
        entry["seconds"] = round(seconds, 3)
    else:
        entry["max_evaluations"] = options.max_evaluations
    return entry


def _solver_version(name: str) -> str:
    return next((info.version for info in registry.list_solvers() if info.name == name), "unknown")
