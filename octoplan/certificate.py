"""The certificate of a plan: the strongest lower bound known, from formulas and from a placement solver."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from octoplan.stopping import run_stoppable
from octoplan_solvers import cp_sat, kind_bound
from octoplan_solvers.bounds import Bound, lower_bounds
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.registry import DEFAULT_SOLVER, list_solvers, solve_assignment
from octoplan_solvers.result import SolverResult

#: Share of the time that counting layers by kind may take; it is often solved in less, and the rest gains.
_KIND_SHARE = 0.5
#: Layers times ranks for which CP-SAT's model is built in a second on a slow machine.
_BUILT_PER_SECOND = 10_000


@dataclass(frozen=True)
class Certificate:
    """The binding bound, and what the master problem found on the way."""

    bound: Bound
    master: SolverResult | None


def strongest_formula(problem: PipelineProblem) -> Bound:
    """Return the strongest bound that needs no search."""
    return lower_bounds(problem)[0]


def certify(
    problem: PipelineProblem,
    *,
    time_limit_s: float,
    seed: int,
    solver: str = DEFAULT_SOLVER,
    deterministic: bool = False,
    hint: Assignment | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Certificate:
    """Run the partition and placement model and return the strongest bound.

    Parameters
    ----------
    solver:
        Name of a placement solver (contract, section 8). One whose objective is no bound of the makespan only
        suggests assignments.
    deterministic:
        Count CP-SAT's limit in its deterministic time and use one worker: the same result every time.
    should_stop:
        Asked ten times a second; True ends the search with what it has.
    """
    bounds = [strongest_formula(problem)]
    if time_limit_s <= 0 or should_stop():
        return Certificate(bounds[0], None)
    began = time.monotonic()
    if kind_bound.applies(problem):
        seconds = run_stoppable(
            lambda event: kind_bound.kind_bound(
                problem,
                time_limit_s=_KIND_SHARE * time_limit_s,
                seed=seed,
                num_workers=1 if deterministic else 2,
                deterministic=deterministic,
                stop=event,
            ),
            should_stop,
        )
        bounds.append(Bound("layer-kinds", seconds))
    left = (1 - _KIND_SHARE) * time_limit_s if deterministic else began + time_limit_s - time.monotonic()
    left = max(left, 0.01)
    no_time = should_stop() or (not deterministic and solver == DEFAULT_SOLVER and _is_large(problem, left))
    # Under constraints the solver's assignments may be the only ones to start from.
    if no_time and not problem.constraints.restricts_placement:
        return Certificate(_strongest(bounds), None)
    if solver == DEFAULT_SOLVER:
        master = run_stoppable(
            lambda event: cp_sat.solve_placement(
                problem,
                time_limit_s=left,
                seed=seed,
                num_workers=1 if deterministic else 2,
                deterministic=deterministic,
                hint=hint,
                stop=event,
            ),
            should_stop,
        )
    else:
        master = solve_assignment(problem, solver=solver, time_limit_s=left, seed=seed, hint=hint)
    if master.bound_s is not None and _bounds_makespan(solver):
        bounds.append(Bound(f"{solver}-placement", master.bound_s))
    return Certificate(_strongest(bounds), master)


def _is_large(problem: PipelineProblem, seconds: float) -> bool:
    """True if stating CP-SAT's model alone would take the time."""
    return problem.num_layers * problem.num_ranks > _BUILT_PER_SECOND * seconds


def _strongest(bounds: list[Bound]) -> Bound:
    return max(bounds, key=lambda bound: bound.seconds)


def _bounds_makespan(solver: str) -> bool:
    return any(info.name == solver and info.objective == "makespan bound" for info in list_solvers())
