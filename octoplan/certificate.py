"""The certificate of a plan: the strongest lower bound known, from formulas and from a placement solver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from octoplan_solvers import cp_sat
from octoplan_solvers.bounds import Bound, lower_bounds
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.registry import DEFAULT_SOLVER, list_solvers, solve_assignment
from octoplan_solvers.result import SolverResult


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
    formula = strongest_formula(problem)
    if time_limit_s <= 0:
        return Certificate(formula, None)
    if solver == DEFAULT_SOLVER:
        master = _interruptible(problem, time_limit_s, seed, deterministic, hint, should_stop)
    else:
        master = solve_assignment(problem, solver=solver, time_limit_s=time_limit_s, seed=seed, hint=hint)
    if master.bound_s is not None and master.bound_s > formula.seconds and _bounds_makespan(solver):
        return Certificate(Bound(f"{solver}-placement", master.bound_s), master)
    return Certificate(formula, master)


def _bounds_makespan(solver: str) -> bool:
    return any(info.name == solver and info.objective == "makespan bound" for info in list_solvers())


def _interruptible(
    problem: PipelineProblem,
    time_limit_s: float,
    seed: int,
    deterministic: bool,
    hint: Assignment | None,
    should_stop: Callable[[], bool],
) -> SolverResult:
    """Run CP-SAT in a thread, so that Ctrl-C is seen at once."""
    stop = threading.Event()
    results: list[SolverResult | BaseException] = []

    def run() -> None:
        try:
            results.append(
                cp_sat.solve_placement(
                    problem,
                    time_limit_s=time_limit_s,
                    seed=seed,
                    num_workers=1 if deterministic else 2,
                    deterministic=deterministic,
                    hint=hint,
                    stop=stop,
                )
            )
        except BaseException as error:  # handed to the caller's thread
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        if should_stop():
            stop.set()
    result = results[0]
    if isinstance(result, BaseException):
        raise result
    return result
