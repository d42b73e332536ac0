"""`compile_plan`: model and cluster in, plan out."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from octoplan.baseline_plans import baseline_problem, run_baseline
from octoplan.baselines import BASELINES, Strategy, parse_strategy
from octoplan.certificate import Certificate, certify, strongest_formula
from octoplan.compile_options import CompileOptions, Progress, check_compile_options
from octoplan.errors import InfeasibleError
from octoplan.job_constraints import placement_constraints
from octoplan.memory_limit import MemoryLimit
from octoplan.ordering import OrderedPlan
from octoplan.plan_writer import PlanInputs, write_plan
from octoplan.problem_builder import build_problem
from octoplan.proof import is_small, prove
from octoplan.tuner import Budget, Candidate, Pricer, SearchTrace, search, starting_assignments, warm_up
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan, PlanJob
from octoplan_solvers import registry
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.problem import PipelineProblem

#: Share of the time limit in which CP-SAT looks for bounds and assignments before the search.
_MASTER_SHARE = 0.3
#: CP-SAT's deterministic seconds where evaluations, not seconds, limit the search.
_DETERMINISTIC_MASTER_S = 2.0
#: Seconds that a small problem gets where the search found nothing that fits, whatever the limits say.
_RESCUE_S = 10.0
#: Ranks times microbatches from which building the zero-bubble baselines takes seconds.
_MANY_SLOTS = 2000


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
    problem = _limited_problem(model, cluster, options)
    if strategy.is_baseline:
        started = time.monotonic()
        trace = None
        ordered, certificate = _compile_baseline(problem, model, strategy)
        problem = baseline_problem(problem, strategy)
    else:
        options.on_progress(Progress("loading kernels (the first run on a machine compiles them)"))
        warm_up()
        started = time.monotonic()
        ordered, certificate, trace = _compile_octoplan(problem, model, options, started)
    job = PlanJob(
        microbatches=options.microbatches,
        backward="split" if problem.split_backward else "fused",
        max_stages_per_device=problem.max_stages_per_rank,
        memory_limit=_recorded_limit(options.memory_limit),
    )
    provenance = _provenance(options, strategy, certificate, trace, time.monotonic() - started)
    return write_plan(PlanInputs(model, cluster, job), ordered, certificate.bound, provenance)


def emit_model(model: ModelGraph, cluster: Cluster, options: CompileOptions, path: str | Path) -> None:
    """Write the partition and placement model of a job: ``.mps`` or ``.lp`` (MILP), ``.pb.txt`` (CP-SAT).

    Raises
    ------
    InputError
        If the name ends otherwise, or the file cannot be written.
    """
    check_compile_options(options)
    try:
        registry.emit_model(_limited_problem(model, cluster, options), path)
    except ValueError as error:
        raise InputError(str(error), source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None


def _limited_problem(model: ModelGraph, cluster: Cluster, options: CompileOptions) -> PipelineProblem:
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
    problem = replace(problem, constraints=constraints)
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
    problem: PipelineProblem, model: ModelGraph, strategy: Strategy
) -> tuple[OrderedPlan, Certificate]:
    ordered = run_baseline(problem, model, strategy)
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
    return ordered, Certificate(bound, None)


def _compile_octoplan(
    problem: PipelineProblem, model: ModelGraph, options: CompileOptions, started: float
) -> tuple[OrderedPlan, Certificate, SearchTrace]:
    """Master problem for bound and starts, search, and the baselines as a floor."""
    pricer = Pricer(problem)
    # Small problems keep half of their time for a proof of optimality, if seconds are what counts.
    prove_until = options.time_limit_s if options.max_evaluations is None and is_small(problem) else 0.0
    seconds = options.time_limit_s / 2 if prove_until else options.time_limit_s
    budget = Budget(seconds, options.max_evaluations, options.should_stop, started)
    starts = starting_assignments(problem)
    options.on_progress(Progress("bound"))
    deterministic = options.max_evaluations is not None
    certificate = certify(
        problem,
        time_limit_s=_DETERMINISTIC_MASTER_S if deterministic else _MASTER_SHARE * options.time_limit_s,
        seed=options.seed,
        solver=options.solver,
        deterministic=deterministic,
        should_stop=options.should_stop,
    )
    if certificate.master is not None:
        starts += certificate.master.solutions[:-6:-1]
    trace = SearchTrace()

    def report(candidate: Candidate) -> None:
        options.on_progress(
            Progress(
                "search", candidate.makespan_s, certificate.bound.seconds, budget.evaluations, budget.spent()
            )
        )

    found = search(
        pricer,
        starts,
        budget,
        seed=options.seed,
        good_enough_s=certificate.bound.seconds * (1 + 1e-9),
        on_best=report,
        trace=trace,
    )
    best = _best_fitting([found, *_floor(problem, model)])
    left = prove_until - (time.monotonic() - started)
    if best is None and is_small(problem):
        left = max(left, _RESCUE_S)
    if left > 0 and (best is None or best.makespan_s > certificate.bound.seconds * (1 + 1e-9)):
        best, bound = prove(
            problem, best, time_limit_s=left, seed=options.seed, should_stop=options.should_stop
        )
        if bound.seconds > certificate.bound.seconds:
            certificate = Certificate(bound, certificate.master)
    if best is None:
        proved = certificate.bound.seconds == float("inf")
        raise InfeasibleError(_why_infeasible(pricer, problem, certificate, proved=proved))
    return best, certificate, trace


def _floor(problem: PipelineProblem, model: ModelGraph) -> list[OrderedPlan]:
    """Every baseline that the job admits: the search must never be worse than one of them.

    On large problems only the methods whose orders cost nothing to build.
    """
    plans: list[OrderedPlan] = []
    if problem.constraints.max_in_flight:
        return plans
    is_large = problem.num_ranks * problem.num_microbatches > _MANY_SLOTS
    for name in BASELINES:
        for partition in ("uniform", "balanced"):
            strategy = Strategy(name, partition)
            own = baseline_problem(problem, strategy)
            if own.max_stages_per_rank > problem.max_stages_per_rank:
                continue
            if own.split_backward and (is_large or not problem.split_backward):
                continue
            try:
                plan = run_baseline(problem, model, strategy)
            except InputError:
                continue  # the method does not admit these sizes
            if not problem.constraints.violations(plan.staged.assignment):
                plans.append(plan)
    return plans


def _best_fitting(plans: list[OrderedPlan | None]) -> OrderedPlan | None:
    fitting = [plan for plan in plans if plan is not None and not plan.excess_bytes().any()]
    return min(fitting, key=lambda plan: plan.makespan_s, default=None)


def _why_infeasible(
    pricer: Pricer, problem: PipelineProblem, certificate: Certificate, *, proved: bool
) -> str:
    """Say what cannot hold together, which rank is short of how many bytes, and what would help."""
    total, limit = float(problem.state_bytes.sum()), float(problem.memory_limit_bytes.sum())
    master = certificate.master
    proved = proved or total > limit or (master is not None and master.status == "infeasible")
    parts = ["no plan exists" if proved else "no plan was found that keeps every limit"]
    if master is not None and master.conflict:
        parts.append(f"these cannot hold together: {'; '.join(master.conflict)}")
    if pricer.least_short is not None:
        parts.append(f"in the closest partition {pricer.least_short}")
    if total > limit:
        parts.append(f"states alone take {total:,.0f} bytes, all ranks together have {limit:,.0f}")
    if master is not None and master.remedy:
        parts.append(f"feasible with {master.remedy}")
    if pricer.least_short is not None:
        parts.append(
            "raise --memory-limit, use more devices or a larger --tensor-parallel or --data-parallel"
        )
    return ". ".join(parts)


def _recorded_limit(limit: str | float | None) -> str | float | None:
    """Return the limit as the plan's job records it: None for none, a number for bytes, else the text."""
    parsed = MemoryLimit.parse(limit)
    if parsed.kind == "none":
        return None
    return parsed.value if parsed.kind == "bytes" else str(limit)


def _provenance(
    options: CompileOptions,
    strategy: Strategy,
    certificate: Certificate,
    trace: SearchTrace | None,
    seconds: float,
) -> dict[str, Any]:
    """Return strategy, versions, seed and time; without seconds where the plan must be reproducible."""
    entry: dict[str, Any] = {"strategy": str(strategy), "octoplan": version("octoplan"), "seed": options.seed}
    if strategy.is_baseline:
        return entry
    entry["solvers"] = {options.solver: _solver_version(options.solver)}
    if certificate.master is not None:
        entry["master"] = {"status": certificate.master.status}
    if trace is not None:
        entry["trace"] = [[round(at, 4), dimension, makespan] for at, dimension, makespan in trace.entries]
    if options.max_evaluations is None:
        entry["seconds"] = round(seconds, 3)
    else:
        entry["max_evaluations"] = options.max_evaluations
    return entry


def _solver_version(name: str) -> str:
    return next((info.version for info in registry.list_solvers() if info.name == name), "unknown")
