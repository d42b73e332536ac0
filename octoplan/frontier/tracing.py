"""`compile_frontier`: a plan for the job, and one for every limit that tells most about the trade-off.

Epsilon-constraint method: the makespan is minimised under one limit of memory after the other. A plan that fits a
tighter limit fits every looser one, so each search starts from what its neighbours found and is never worse than the
tighter one; its bound holds for all tighter limits. First the job's own limit, then none and the tightest known, then
wherever the rectangle between two neighbours is largest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from octoplan.baseline_plans import run_baseline
from octoplan.baselines import parse_strategy
from octoplan.certificate import Certificate, strongest_formula
from octoplan.compile_options import CompileOptions, Progress, check_compile_options
from octoplan.compiler import limited_problem, load_kernels, plan_of
from octoplan.errors import InfeasibleError
from octoplan.frontier.axis import Axis
from octoplan.frontier.frontier import BaselinePoint, Frontier, FrontierPoint
from octoplan.frontier.pool import Pool, PoolPlan
from octoplan.memory_limit import MemoryLimit
from octoplan.optimise import Optimised, WarmStart, floor_strategies, optimise
from octoplan.ordering import OrderedPlan, one_microbatch_at_a_time, run_order
from octoplan.targets import get_target
from octoplan.tuner import SearchTrace, starting_assignments
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan
from octoplan_solvers.problem import PipelineProblem
from octoplan_solvers.staged import build_staged

#: Limits that are searched besides the job's own.
NUM_LIMITS = 12
#: How many times as long as another the job's own limit is searched.
_JOB_WEIGHT = 4
#: Share of the time after which no further baseline is built.
_BASELINES_SHARE = 0.4
_OCTOPLAN = "octoplan"


def compile_frontier(model: ModelGraph, cluster: Cluster, options: CompileOptions) -> Frontier:
    """Compile the job's plan, and the trade-off of makespan against memory around it.

    Parameters
    ----------
    options:
        Time limit or evaluations for everything together. The memory limit is the job's, and its kind is the unit.

    Raises
    ------
    InputError
        If the inputs or options make no sense, or the strategy is a baseline.
    InfeasibleError
        If no plan fits the job's own limit.
    """
    check_compile_options(options)
    if parse_strategy(options.strategy).is_baseline:
        raise InputError(
            f"a baseline has one plan and no frontier; leave {options.strategy!r} out", field="strategy"
        )
    load_kernels(options, limited_problem(model, cluster, options))
    tracer = _Tracer(model, cluster, options)
    tracer.search_job()
    tracer.add_baselines()
    tracer.add_tightest()
    tracer.search_limits()
    return tracer.frontier()


@dataclass
class _Shares:
    """Splits what is left of the time, or the evaluations, by weight."""

    options: CompileOptions
    weight_left: float
    ends: float
    evaluations_per_weight: float | None = None
    reserve_s: float = 0.0

    @classmethod
    def of(cls, options: CompileOptions, weight: float) -> _Shares:
        """Begin now."""
        counts = options.max_evaluations
        each = None if counts is None else counts / weight
        return cls(options, weight, time.monotonic() + options.time_limit_s, each)

    def take(self, weight: float, what: str) -> CompileOptions:
        """Return options with the part that a weight stands for."""
        left_s = max(self.ends - self.reserve_s - time.monotonic(), 0.0)
        part = min(weight / max(self.weight_left, weight), 1.0)
        self.weight_left -= weight
        options, each = self.options, self.evaluations_per_weight

        def tell(progress: Progress) -> None:
            options.on_progress(replace(progress, phase=f"{what}: {progress.phase}"))

        return replace(
            options,
            time_limit_s=part * left_s,
            max_evaluations=None if each is None else max(1, round(each * weight)),
            on_progress=tell,
        )


@dataclass
class _Tracer:
    """The pool of plans, as it grows."""

    model: ModelGraph
    cluster: Cluster
    options: CompileOptions
    problem: PipelineProblem = field(init=False)
    axis: Axis = field(init=False)
    pool: Pool = field(default_factory=Pool)
    baselines: list[BaselinePoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.problem = limited_problem(self.model, self.cluster, self.options)
        limit = MemoryLimit.parse(self.options.memory_limit)
        self.axis = Axis.of(limit, self.problem, self.model, self.cluster)
        self.job_limit = limit.value
        self._target = get_target(self.options.target)
        self._began = time.monotonic()
        self._shares = _Shares.of(self.options, _JOB_WEIGHT + NUM_LIMITS)
        self._job: Optimised | None = None

    def search_job(self) -> None:
        """Search the job's own limit; without a plan there, there is nothing to trade."""
        self._job = optimise(self.problem, self.model, self._shares.take(_JOB_WEIGHT, "the job's limit"))
        self._take_in(self._job, self.job_limit)
        # Every plan is written down, and to a file, in the end: what that takes is not there to search.
        began = time.monotonic()
        self._job_plan()
        self._shares.reserve_s = 2 * (time.monotonic() - began) * (NUM_LIMITS + 2)

    def add_baselines(self) -> None:
        """Take in the baselines that target and job admit."""
        free = self.axis.limited(self.problem, math.inf)
        for strategy in floor_strategies(free, self._target):
            if self._is_late(_BASELINES_SHARE):
                return
            try:
                plan = self._target.as_run(run_baseline(free, self.model, strategy))
            except InputError:
                continue  # the method does not admit these sizes
            if plan is None or self.problem.constraints.violations(plan.staged.assignment):
                continue
            entry = self._entry(plan, str(strategy))
            self.pool.plans.append(entry)
            self.baselines.append(BaselinePoint(entry.origin, entry.memory, entry.makespan_s))

    def add_tightest(self) -> None:
        """Take in one microbatch at a time, on the regular placement that needs the least memory so.

        Where the engine runs only placements or orders of its own, the tightest baseline must do.
        """
        if not self._target.runs_any_placement:
            return
        free = self.axis.limited(self.problem, math.inf)
        entries = []
        for assignment in starting_assignments(replace(free, memory_limit_bytes=self.axis.unit_bytes)):
            staged = build_staged(free, assignment)
            plan = self._target.as_run(run_order(staged, one_microbatch_at_a_time(staged)))
            if plan is not None:
                entries.append(self._entry(plan, _OCTOPLAN))
            if self._is_late(_BASELINES_SHARE):
                break
        self.pool.plans += sorted(entries, key=lambda entry: entry.memory)[:1]

    def search_limits(self) -> None:
        """Search without a limit, under the tightest one known, and then where it tells most."""
        tightest = self.axis.rounded_up(self.pool.frontier()[0].memory)
        planned: list[float] = [math.inf, tightest]
        tried = [self.job_limit]
        while len(tried) <= NUM_LIMITS and not self._is_late():
            limit = planned.pop(0) if planned else self.pool.widest_gap(tried, self.axis.rounded_up)
            if limit is None:
                return
            tried.append(limit)
            self._search(limit)

    def frontier(self) -> Frontier:
        """Write down the plans that nothing beats, and the job's."""
        limit = self.job_limit if math.isfinite(self.job_limit) else None
        # Of plans that the same limit asks for only the fastest, which is the last, is of use.
        by_limit = {self.axis.rounded_up(entry.memory): entry for entry in self.pool.frontier()}
        points = tuple(self._point(entry) for entry in by_limit.values())
        return Frontier(self.axis.kind, limit, self._job_plan(), points, tuple(self.baselines))

    def _job_plan(self) -> Plan:
        """Return the fastest plan within the job's limit, whichever search it comes from."""
        assert self._job is not None
        own = replace(self._entry(self._job.plan, _OCTOPLAN), warm=self._job.warm_start())
        best = min([own, *self.pool.fastest(self.job_limit)[:1]], key=lambda entry: entry.makespan_s)
        return self._document(best, self.job_limit, self._job.certificate, self._job.trace.entries)

    def _search(self, limit: float) -> None:
        problem = self.axis.limited(self.problem, limit)
        options = self._shares.take(1, f"limit {self.axis.text(limit)}")
        try:
            self._take_in(optimise(problem, self.model, options, warm=self._neighbours(limit)), limit)
        except InfeasibleError:
            return  # nothing as tight as this was found: the frontier begins further to the right

    def _neighbours(self, limit: float) -> WarmStart:
        """Return what was found for the next tighter and the next looser limit, and the best plan that fits."""
        frontier = self.pool.frontier()
        tighter = [entry for entry in frontier if entry.memory <= limit][-1:]
        looser = [entry for entry in frontier if entry.memory > limit][:1]
        known = WarmStart()
        for entry in [*tighter, *looser]:
            known = known.and_also(replace(entry.warm, orders=((entry.assignment, entry.order),)))
        return known

    def _take_in(self, found: Optimised, limit: float) -> None:
        self.pool.plans.append(replace(self._entry(found.plan, _OCTOPLAN), warm=found.warm_start()))
        self.pool.bounds.append((limit, found.certificate.bound))

    def _entry(self, plan: OrderedPlan, origin: str) -> PoolPlan:
        order = plan.replay.schedule.order
        memory = self.axis.used(plan.simulation)
        return PoolPlan(memory, plan.makespan_s, plan.staged.assignment, order, origin)

    def _point(self, entry: PoolPlan) -> FrontierPoint:
        limit = self.axis.rounded_up(entry.memory)
        bound = self.pool.bound_at(limit) or strongest_formula(self.problem)
        plan = self._document(entry, limit, Certificate(bound, None))
        return FrontierPoint(
            entry.memory, self.axis.text(limit), entry.makespan_s, bound.seconds, entry.origin, plan
        )

    def _document(
        self,
        entry: PoolPlan,
        limit: float,
        certificate: Certificate,
        improvements: Sequence[tuple[float, str, float]] = (),
    ) -> Plan:
        """Write a plan down as the plan of the job under a limit."""
        problem = self.axis.limited(self.problem, limit)
        ordered = run_order(build_staged(problem, entry.assignment), entry.order)
        assert not ordered.excess_bytes().any(), "a plan keeps the limit that it needs"
        text = self.options.memory_limit if limit == self.job_limit else self.axis.text(limit)
        options = replace(self.options, memory_limit=text)
        trace = SearchTrace(list(improvements), list(entry.warm.candidates))
        seconds = time.monotonic() - self._began
        return plan_of(
            self.model, self.cluster, options, problem, Optimised(ordered, certificate, trace), seconds
        )

    def _is_late(self, share: float = 1.0) -> bool:
        """True if a share of the time is over, where seconds count, or the search shall end."""
        if self.options.should_stop():
            return True
        spent_s = time.monotonic() - self._began
        return self.options.max_evaluations is None and spent_s >= share * self.options.time_limit_s
