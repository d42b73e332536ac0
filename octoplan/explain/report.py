"""`explain_plan`: what a plan's time goes into, and what each change of its job would be worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octoplan.certificate import strongest_formula
from octoplan.checking import simulate
from octoplan.compile_options import CompileOptions, Progress, check_compile_options
from octoplan.compiler import limited_problem, load_kernels
from octoplan.explain.changes import Job, changes_worth_trying
from octoplan.explain.diagnosis import diagnose
from octoplan.explain.explanation import Explanation, WhatIf
from octoplan.explain.what_if import CONTROL, CONTROL_TEXT, Laboratory, by_gain
from octoplan.optimise import Optimised, WarmStart
from octoplan.plan_policy import recorded_candidate
from octoplan.problem_builder import assignment_of
from octoplan.simulator import Simulation
from octoplan.targets import TARGETS
from octoplan_schemas import Cluster, Constraint, ModelGraph, Plan
from octoplan_solvers.bounds import Bound

DEFAULT_TIME_LIMIT_S = 30.0


@dataclass(frozen=True)
class ExplainOptions:
    """How long to search, and under which constraints.

    Parameters
    ----------
    time_limit_s:
        Seconds of all searches together: one for the same job again, and one for each change.
    max_evaluations:
        Candidates of all searches together; with ``seed`` the answer is then the same every time.
    constraints:
        Those that the plan was compiled under: a plan file does not hold them.
    on_progress, should_stop:
        As in `octoplan.CompileOptions`; ``should_stop`` leaves out the changes that are not tried yet.
    """

    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    max_evaluations: int | None = None
    seed: int = 0
    constraints: tuple[Constraint, ...] = ()
    on_progress: Callable[[Progress], None] = lambda progress: None
    should_stop: Callable[[], bool] = lambda: False


def explain_plan(
    plan: Plan, model: ModelGraph, cluster: Cluster, options: ExplainOptions | None = None
) -> Explanation:
    """Say where a plan's time goes, which bound binds, and what each change would be worth.

    Every change is searched anew, from the plan itself: a change that only removes limits never looks worse than the
    plan. Gains are measured against the better of the plan and of a search of the unchanged job that took as long.

    Raises
    ------
    InputError
        If the plan is not valid, or was made for another model or cluster.
    """
    options = ExplainOptions() if options is None else options
    job = _job(plan, model, cluster, options)
    simulation = simulate(plan, model, cluster)
    load_kernels(job.options, job.problem)
    changes = changes_worth_trying(job, diagnose(job.problem, simulation, strongest_formula(job.problem)))
    laboratory = Laboratory(job.options, 1 + len(changes))
    known = _known(plan, simulation)
    again = laboratory.search_again(job, known)
    reference_s = min(simulation.makespan_s, _makespan_s(again))
    known = known if again is None else known.and_also(again.warm_start())
    what_ifs = [
        laboratory.try_change(change, known, reference_s) for change in changes if not options.should_stop()
    ]
    diagnosis = diagnose(job.problem, simulation, _bound(job, again), recorded=_recorded_bound(plan))
    return Explanation(diagnosis, _control(again), by_gain(what_ifs))


def _job(plan: Plan, model: ModelGraph, cluster: Cluster, options: ExplainOptions) -> Job:
    """Return the job that the plan records."""
    target = (plan.provenance.model_extra or {}).get("target")
    compile_options = CompileOptions(
        plan.job.microbatches,
        backward=plan.job.backward,
        max_stages_per_device=plan.job.max_stages_per_device,
        memory_limit=plan.job.memory_limit,
        time_limit_s=options.time_limit_s,
        seed=options.seed,
        target=target if isinstance(target, str) and target in TARGETS else "octoplan",
        constraints=options.constraints,
        max_evaluations=options.max_evaluations,
        on_progress=options.on_progress,
        should_stop=options.should_stop,
    )
    check_compile_options(compile_options)
    return Job(model, cluster, compile_options, limited_problem(model, cluster, compile_options))


def _known(plan: Plan, simulation: Simulation) -> WarmStart:
    candidate = recorded_candidate(plan)
    order = assignment_of(plan), simulation.schedule.order
    return WarmStart(() if candidate is None else (candidate,), (order,))


def _makespan_s(found: Optimised | None) -> float:
    return float("inf") if found is None else found.plan.makespan_s


def _bound(job: Job, again: Optimised | None) -> Bound:
    return strongest_formula(job.problem) if again is None else again.certificate.bound


def _recorded_bound(plan: Plan) -> Bound | None:
    predicted = plan.predicted
    if predicted.lower_bound_s is None or predicted.binding_bound is None:
        return None
    return Bound(predicted.binding_bound, predicted.lower_bound_s)


def _control(again: Optimised | None) -> WhatIf:
    if again is None:
        return WhatIf(CONTROL, CONTROL_TEXT, None, None, None)
    return WhatIf(CONTROL, CONTROL_TEXT, again.plan.makespan_s, None, again.certificate.bound.seconds)
