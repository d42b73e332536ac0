"""A placement solver as a method of its own: what it finds, ordered by list scheduling, and nothing else.

That makes solvers comparable: they get the same time, and their assignments the same portfolio of ordering rules. A
solver's bound counts as the plan's where its objective is a bound of the makespan.
"""

from __future__ import annotations

from collections.abc import Iterator

from octoplan.certificate import strongest_formula
from octoplan.compile_options import CompileOptions, Progress
from octoplan.compiler import limited_problem
from octoplan.errors import InfeasibleError
from octoplan.ordering import OrderedPlan, order_by_policy
from octoplan.study.finished import WrongAnswerError, finished_plan
from octoplan.tuner import Pricer, warm_up
from octoplan_schemas import Cluster, ModelGraph, Plan
from octoplan_solvers.bounds import Bound
from octoplan_solvers.placement_check import check_assignment
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.registry import list_solvers, solve_assignment
from octoplan_solvers.result import SolverResult

#: Assignments of one run, the last ones, that are ordered.
_MOST_ASSIGNMENTS = 20


def solver_plan(solver: str, model: ModelGraph, cluster: Cluster, options: CompileOptions) -> Plan:
    """Solve partition and placement, order every solution, and return the best plan that fits.

    Raises
    ------
    InfeasibleError
        If the solver proves that there is no assignment, or finds none that fits.
    WrongAnswerError
        If it returns an assignment that is not allowed.
    """
    warm_up()
    problem = limited_problem(model, cluster, options)
    result = solve_assignment(problem, solver=solver, time_limit_s=options.time_limit_s, seed=options.seed)
    best: OrderedPlan | None = None
    for plan in _plans(problem, result):
        if best is None or plan.makespan_s < best.makespan_s:
            best = plan
            options.on_progress(Progress("order", plan.makespan_s))
    if best is None:
        raise InfeasibleError(f"{solver} is {result.status}" + "".join(f"; {why}" for why in result.conflict))
    provenance = {"strategy": f"solver:{solver}", "status": result.status, "seed": options.seed}
    return finished_plan(model, cluster, options, best, _bound(problem, solver, result), provenance)


def _plans(problem: PipelineProblem, result: SolverResult) -> Iterator[OrderedPlan]:
    """Yield a plan for each solution whose exact simulation fits."""
    pricer = Pricer(problem)
    for assignment in _assignments(result):
        faults = check_assignment(problem, assignment)
        if faults:
            raise WrongAnswerError(f"{result.solver} returned an assignment that is not allowed: {faults[0]}")
        candidate = pricer.best(assignment)
        scheduler = pricer.scheduler(assignment)
        if candidate is None or scheduler is None:
            continue
        plan = order_by_policy(scheduler, candidate.policy(scheduler))
        if not plan.excess_bytes().any():
            yield plan


def _assignments(result: SolverResult) -> list[Assignment]:
    found = [
        *result.solutions[-_MOST_ASSIGNMENTS:],
        *([] if result.assignment is None else [result.assignment]),
    ]
    return list(dict.fromkeys(found))


def _bound(problem: PipelineProblem, solver: str, result: SolverResult) -> Bound:
    """Return the strongest bound: a formula, or the solver's own."""
    formula = strongest_formula(problem)
    objective = next((info.objective for info in list_solvers() if info.name == solver), "")
    if objective != "makespan bound" or result.bound_s is None or result.bound_s <= formula.seconds:
        return formula
    return Bound(f"{solver}-placement", result.bound_s)
