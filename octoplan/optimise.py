"""`optimise`: the best plan of a `PipelineProblem` within the budget, with the strongest bound known.

Baselines first, as a floor; then the placement solver for bounds and starts; the search; and for small problems a
proof. Every phase looks at the clock and asks whether to stop, and what has been found by then is returned.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from octoplan.baseline_plans import baseline_problem, run_baseline
from octoplan.baselines import Strategy
from octoplan.certificate import Certificate, certify, strongest_formula
from octoplan.compile_options import CompileOptions
from octoplan.errors import InfeasibleError
from octoplan.ordering import OrderedPlan, run_order
from octoplan.progress import Reporter
from octoplan.proof import is_small, prove
from octoplan.targets import Target, get_target
from octoplan.tuner import Budget, Candidate, Pricer, SearchTrace, starting_assignments
from octoplan_schemas import InputError, ModelGraph
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import build_staged

#: Share of the time limit in which CP-SAT looks for bounds and assignments before the search.
_MASTER_SHARE = 0.25
#: CP-SAT's deterministic seconds where evaluations, not seconds, limit the search.
_DETERMINISTIC_MASTER_S = 2.0
#: Seconds that a small problem gets where the search found nothing that fits, whatever the limits say.
_RESCUE_S = 10.0
#: Ranks times microbatches from which building the zero-bubble baselines takes seconds.
_MANY_SLOTS = 2000
#: Share of the time limit after which no further baseline is built.
_FLOOR_SHARE = 0.15
#: Relative difference of makespan and bound that is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class WarmStart:
    """What is known of a problem before it is searched.

    Attributes
    ----------
    candidates:
        Partitions and placements with the policies that order them; makespans are computed anew.
    orders:
        Whole plans. Those that keep the limits are a floor: the result is never worse.
    """

    candidates: tuple[Candidate, ...] = ()
    orders: tuple[tuple[Assignment, Order], ...] = ()

    @property
    def assignments(self) -> list[Assignment]:
        """Every partition and placement once."""
        known = [assignment for assignment, _ in self.orders]
        return list(dict.fromkeys([*known, *(candidate.assignment for candidate in self.candidates)]))

    def and_also(self, other: WarmStart) -> WarmStart:
        """Return both together."""
        return WarmStart(self.candidates + other.candidates, self.orders + other.orders)


@dataclass(frozen=True)
class Optimised:
    """The best plan found, its certificate, the search's improvements, and what a further search starts from."""

    plan: OrderedPlan
    certificate: Certificate
    trace: SearchTrace = field(default_factory=SearchTrace)

    @property
    def candidate(self) -> Candidate | None:
        """The candidate that the plan comes from; None if it is a baseline's, or a proof's."""
        own = (one for one in self.trace.elite if one.assignment == self.plan.staged.assignment)
        return next(own, None)

    def warm_start(self) -> WarmStart:
        """Return a start for a neighbouring problem."""
        order = self.plan.staged.assignment, self.plan.replay.schedule.order
        return WarmStart(tuple(self.trace.elite), (order,))


def optimise(
    problem: PipelineProblem,
    model: ModelGraph,
    options: CompileOptions,
    *,
    started: float | None = None,
    warm: WarmStart = WarmStart(),
) -> Optimised:
    """Search partition, placement and order together.

    Parameters
    ----------
    problem:
        With its limits, and restricted to what the options' target runs.
    model:
        Kinds of layers, for the baselines' partitions.
    options:
        Time, evaluations, seed, gap, solver, target and callbacks; the rest is in the problem.
    started:
        Value of ``time.monotonic()`` from which the time limit counts; None: now.
    warm:
        Known plans and candidates.

    Raises
    ------
    InfeasibleError
        If no plan that keeps the limits was found.
    """
    run = _Run(problem, model, options, time.monotonic() if started is None else started, warm)
    run.raise_floor()
    if not run.is_good_enough():
        run.certify()
    if not run.is_good_enough():
        run.search()
    if not run.is_good_enough():
        run.prove()
    return run.outcome()


class _Run:
    """One optimisation: the best plan and the bound, as phase after phase improves them."""

    def __init__(
        self,
        problem: PipelineProblem,
        model: ModelGraph,
        options: CompileOptions,
        started: float,
        warm: WarmStart,
    ) -> None:
        self._problem, self._model, self._options, self._warm = problem, model, options, warm
        self._target = get_target(options.target)
        self._pricer = self._target.pricer(problem)
        self._started = started
        self._best: OrderedPlan | None = None
        self._certificate = Certificate(strongest_formula(problem), None)
        self._trace = SearchTrace()
        # Small problems keep half of their time for a proof of optimality, if seconds are what counts.
        self._provable = self._target.runs_any_placement and is_small(problem)
        self._proves = self._provable and options.max_evaluations is None
        seconds = options.time_limit_s / 2 if self._proves else options.time_limit_s
        self._reporter = Reporter(options, started)
        self._budget = Budget(seconds, options.max_evaluations, self._reporter.should_stop, started)
        self._reporter.watch(self._budget, self._trace)

    def raise_floor(self) -> None:
        """Take the known plans, and every baseline that job and target admit, as far as there is time."""
        self._reporter.begin("baselines", self._certificate.bound.seconds)
        for assignment, order in self._warm.orders:
            if self._allows(assignment):
                plan = run_order(build_staged(self._problem, assignment), order)
                self._offer(self._target.as_run(plan))
        for strategy in floor_strategies(self._problem, self._target):
            if self._budget.is_late(_FLOOR_SHARE):
                break
            try:
                plan = run_baseline(self._problem, self._model, strategy)
            except InputError:
                continue  # the method does not admit these sizes
            if not self._problem.constraints.violations(plan.staged.assignment):
                self._offer(self._target.as_run(plan))

    def certify(self) -> None:
        """Run the placement solver: a bound, and assignments to start from."""
        self._reporter.begin("bound", self._certificate.bound.seconds)
        options = self._options
        deterministic = options.max_evaluations is not None
        share_s = _MASTER_SHARE * options.time_limit_s
        self._certificate = certify(
            self._problem,
            time_limit_s=_DETERMINISTIC_MASTER_S if deterministic else share_s,
            seed=options.seed,
            solver=options.solver,
            deterministic=deterministic,
            should_stop=self._reporter.should_stop,
        )

    def search(self) -> None:
        """Search from known candidates, regular placements and the placement solver's solutions."""
        self._reporter.begin("search", self._certificate.bound.seconds)
        master = self._certificate.master
        regular = starting_assignments(self._problem) + list(master.solutions[:-6:-1] if master else [])
        self._pricer.known = () if self._best is None else (self._best,)
        found = self._target.search(
            self._pricer,
            self._warm_starts() + regular,
            self._budget,
            seed=self._options.seed,
            good_enough_s=self._good_enough_s,
            on_best=self._reporter.on_best,
            trace=self._trace,
        )
        self._offer(found)

    def prove(self) -> None:
        """Spend what is left of a small problem's time on a proof, and more if nothing was found that fits."""
        left = self._options.time_limit_s - (time.monotonic() - self._started) if self._proves else 0.0
        if self._best is None and self._provable:
            left = max(left, _RESCUE_S)
        if left <= 0:
            return
        self._reporter.begin("proof", self._certificate.bound.seconds)
        proven, bound = prove(
            self._problem,
            self._best,
            time_limit_s=left,
            seed=self._options.seed,
            should_stop=self._reporter.should_stop,
        )
        self._offer(None if proven is None else self._target.as_run(proven))
        if bound.seconds > self._certificate.bound.seconds:
            self._certificate = Certificate(bound, self._certificate.master)

    def is_good_enough(self) -> bool:
        """True once the gap is what the options ask for."""
        return self._best is not None and self._best.makespan_s <= self._good_enough_s

    def outcome(self) -> Optimised:
        """Return the best plan, or say why there is none."""
        if self._best is None:
            raise InfeasibleError(why_infeasible(self._pricer, self._problem, self._certificate))
        return Optimised(self._best, self._certificate, self._trace)

    @property
    def _good_enough_s(self) -> float:
        return self._certificate.bound.seconds * (1 + max(self._options.gap, _ROUNDING))

    def _offer(self, plan: OrderedPlan | None) -> None:
        if plan is None or plan.excess_bytes().any():
            return
        # Of equals the later one: what the search finds has a policy to go on from, what a baseline is has none.
        if self._best is None or plan.makespan_s <= self._best.makespan_s:
            self._best = plan
            self._reporter.on_best(plan)

    def _warm_starts(self) -> list[Assignment]:
        """Return known partitions and placements; the search prices candidates under their own policies."""
        self._pricer.candidates = self._warm.candidates
        return [assignment for assignment in self._warm.assignments if self._allows(assignment)]

    def _allows(self, assignment: Assignment) -> bool:
        """True if the job allows a partition and placement that is known from elsewhere."""
        most = max(Counter(assignment.ranks).values())
        is_small_enough = most <= self._problem.max_stages_per_rank
        return is_small_enough and not self._problem.constraints.violations(assignment)


def floor_strategies(problem: PipelineProblem, target: Target) -> list[Strategy]:
    """Return the baselines that the search must never be worse than, the ones quickly built first.

    On large problems only the methods whose orders cost nothing to build.
    """
    if problem.constraints.max_in_flight:
        return []
    is_large = problem.num_ranks * problem.num_microbatches > _MANY_SLOTS
    admitted = []
    for strategy in target.strategies(problem):
        own = baseline_problem(problem, strategy)
        if own.max_stages_per_rank > problem.max_stages_per_rank:
            continue
        if own.split_backward and (is_large or not problem.split_backward):
            continue
        admitted.append((own.split_backward, strategy))
    return [strategy for _, strategy in sorted(admitted, key=lambda entry: entry[0])]


def why_infeasible(pricer: Pricer, problem: PipelineProblem, certificate: Certificate) -> str:
    """Say what cannot hold together, which rank is short of how many bytes, and what would help."""
    total, limit = float(problem.state_bytes.sum()), float(problem.memory_limit_bytes.sum())
    master = certificate.master
    proved = certificate.bound.seconds == float("inf")
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
