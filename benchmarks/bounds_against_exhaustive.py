"""Every bound and every compiled plan against the true optimum of random tiny problems, side by side in one run.

``python -m benchmarks.bounds_against_exhaustive [--problems 500] [--first-seed 0] [--processes 2]
[--solvers cp-sat milp:highs] [--evaluations 300] [--proof-seconds 5]``

From the repository's root: the optimum comes from `tests.exhaustive`, an independent search of every partition,
placement and order. A violation is a bound above the optimum, a plan below it, or a problem called infeasible that is
not: there must be none. Where received tensors decide, the optimum lies between two figures; bounds are held against
the upper, plans against the lower one, and gaps count from the upper.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median

import numpy as np

import octoplan
from octoplan.proof import prove
from octoplan_schemas import Plan
from octoplan_solvers.bounds import lower_bounds
from octoplan_solvers.registry import solve_assignment
from tests.exhaustive import Optimum
from tests.tiny_problems import TinyProblem, random_tiny_problem

#: Relative; floats of the two sides are summed in different orders.
TOLERANCE = 1e-9
STRONGEST = "strongest of all"


@dataclass
class Outcome:
    """What one problem gave; seconds."""

    seed: int
    #: Of the exhaustive search: its seconds, nodes, whether no plan fits, and whether the optimum is known exactly.
    search_s: float = 0.0
    num_nodes: int = 0
    is_infeasible: bool = False
    is_exact: bool = True
    optimum_s: float | None = None
    bounds: dict[str, float] = field(default_factory=dict)
    #: Of Benders decomposition: its plan, if it found one.
    proof_s: float | None = None
    #: Of the compiled plan; None if it was not compiled, or if no plan was found.
    plan_s: float | None = None
    binding: str | None = None
    violations: list[str] = field(default_factory=list)


def main() -> int:
    """Print violations, the gap of each bound, and how good compiled plans are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--solvers", nargs="*", default=["cp-sat"], help="for partition and placement")
    parser.add_argument("--solver-seconds", type=float, default=2.0)
    parser.add_argument("--evaluations", type=int, default=300, help="of each compilation; 0: do not compile")
    parser.add_argument("--proof-seconds", type=float, default=0.0, help="of Benders decomposition; 0: none")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.problems)
    run = partial(
        examine,
        solvers=options.solvers,
        seconds=options.solver_seconds,
        evaluations=options.evaluations,
        proof_seconds=options.proof_seconds,
    )
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for outcome in pool.imap_unordered(run, seeds):
            outcomes.append(outcome)
            for violation in outcome.violations:
                print(f"VIOLATION {violation}", flush=True)
    print_search(outcomes)
    print_bounds(outcomes)
    if options.proof_seconds:
        print_excess(outcomes, "Benders decomposition", [outcome.proof_s for outcome in outcomes])
    if options.evaluations:
        print_plans(outcomes, options.evaluations)
    violations = sum(len(outcome.violations) for outcome in outcomes)
    print(f"\n{violations} violations in {len(outcomes)} problems")
    return 1 if violations else 0


def examine(
    seed: int, *, solvers: list[str], seconds: float, evaluations: int, proof_seconds: float
) -> Outcome:
    """Solve one problem exhaustively and hold everything against it."""
    problem = random_tiny_problem(seed)
    started = time.perf_counter()
    optimum = problem.optimum()
    outcome = Outcome(seed, search_s=time.perf_counter() - started)
    if optimum is None:
        outcome.is_infeasible = True
    else:
        outcome.num_nodes, outcome.is_exact = optimum.num_nodes, optimum.is_exact
        outcome.optimum_s = optimum.makespan_s
    examine_bounds(problem, outcome, solvers, seconds)
    if proof_seconds:
        examine_proof(problem, optimum, outcome, proof_seconds)
    require_bounds(problem, outcome)
    if evaluations:
        examine_plan(problem, optimum, outcome, evaluations)
    return outcome


def examine_bounds(problem: TinyProblem, outcome: Outcome, solvers: list[str], seconds: float) -> None:
    """Collect the bounds of formulas and solvers; who says infeasible where a plan fits is a violation."""
    arrays = problem.problem(np.array(problem.limits))
    outcome.bounds = {bound.name: bound.seconds for bound in lower_bounds(arrays)}
    for solver in solvers:
        result = solve_assignment(arrays, solver=solver, time_limit_s=seconds, num_workers=1)
        if result.bound_s is not None:
            outcome.bounds[solver] = result.bound_s
        if result.status == "infeasible" and outcome.optimum_s is not None:
            outcome.violations.append(f"{solver} says infeasible: {problem}")


def examine_proof(problem: TinyProblem, optimum: Optimum | None, outcome: Outcome, seconds: float) -> None:
    """Solve by Benders decomposition with exact orders; a plan below the optimum is a violation."""
    try:
        plan, bound = prove(problem.problem(np.array(problem.limits)), None, time_limit_s=seconds, seed=0)
    except Exception as error:  # to be seen, beside what else the run finds
        outcome.violations.append(f"Benders decomposition raises {error!r}: {problem}")
        return
    outcome.bounds[bound.name] = bound.seconds
    if plan is not None:
        outcome.proof_s = plan.makespan_s
        require_no_shorter(plan.makespan_s, problem, optimum, outcome)


def require_bounds(problem: TinyProblem, outcome: Outcome) -> None:
    """Note every bound above the optimum."""
    outcome.bounds[STRONGEST] = max(outcome.bounds.values())
    for name, bound_s in outcome.bounds.items():
        if name != STRONGEST and exceeds(bound_s, outcome.optimum_s):
            outcome.violations.append(
                f"bound {name!r} of {bound_s!r} s, but a plan takes {outcome.optimum_s!r} s: {problem}"
            )


def exceeds(bound_s: float, optimum_s: float | None) -> bool:
    """Whether a bound lies above the optimum; where no plan fits, none does."""
    return optimum_s is not None and bound_s > optimum_s * (1 + TOLERANCE)


def examine_plan(problem: TinyProblem, optimum: Optimum | None, outcome: Outcome, evaluations: int) -> None:
    """Compile; a plan below the optimum, or a bound of the plan above it, is a violation."""
    try:
        plan = compile_problem(problem, evaluations)
    except octoplan.InfeasibleError:
        return
    predicted = plan.predicted
    outcome.plan_s, outcome.binding = predicted.makespan_s, predicted.binding_bound
    require_no_shorter(predicted.makespan_s, problem, optimum, outcome)
    if predicted.lower_bound_s is not None and exceeds(predicted.lower_bound_s, outcome.optimum_s):
        outcome.violations.append(
            f"the plan's bound {predicted.binding_bound!r} of {predicted.lower_bound_s!r} s, "
            f"but a plan takes {outcome.optimum_s!r} s: {problem}"
        )


def require_no_shorter(
    makespan_s: float, problem: TinyProblem, optimum: Optimum | None, outcome: Outcome
) -> None:
    """Note a plan that the exhaustive search says cannot be."""
    if optimum is None:
        outcome.violations.append(f"a plan was found where none fits: {problem}")
    elif makespan_s < optimum.lower_s * (1 - TOLERANCE):
        outcome.violations.append(
            f"a plan of {makespan_s!r} s, but none below {optimum.lower_s!r} s exists: {problem}"
        )


def compile_problem(problem: TinyProblem, evaluations: int) -> Plan:
    """Compile reproducibly, each rank limited to its device's memory."""
    options = octoplan.CompileOptions(
        microbatches=problem.num_microbatches,
        backward=problem.backward,
        max_stages_per_device=problem.max_stages_per_device,
        memory_limit="100%",
        max_evaluations=evaluations,
    )
    return octoplan.compile_plan(problem.model, problem.cluster, options)


def print_search(outcomes: list[Outcome]) -> None:
    """Print how hard the problems were."""
    seconds = sorted(outcome.search_s for outcome in outcomes)
    infeasible = sum(outcome.is_infeasible for outcome in outcomes)
    open_ = sum(not outcome.is_exact for outcome in outcomes)
    print(
        f"\n{len(outcomes)} problems: no plan fits in {infeasible}; optimum bracketed, not exact, in {open_}"
    )
    print(
        f"exhaustive search, seconds: mean {fmean(seconds):.3f}, median {median(seconds):.3f}, "
        f"99% {seconds[int(0.99 * len(seconds))]:.2f}, max {seconds[-1]:.2f}; "
        f"nodes: max {max(outcome.num_nodes for outcome in outcomes):,}"
    )


def print_bounds(outcomes: list[Outcome]) -> None:
    """Print how far below the optimum each bound lies, and how often it is the strongest."""
    gaps: dict[str, list[float]] = defaultdict(list)
    wins: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        if not outcome.optimum_s:
            continue
        for name, bound_s in outcome.bounds.items():
            gaps[name].append(outcome.optimum_s / bound_s - 1 if bound_s > 0 else math.inf)
            wins[name] += bound_s >= outcome.bounds[STRONGEST] * (1 - TOLERANCE)
    print(
        f"\n{'gap to the optimum':24}{'mean':>9}{'median':>9}{'max':>9}{'tight':>8}{'zero':>8}{'strongest':>11}"
    )
    for name, values in sorted(gaps.items(), key=lambda item: median(item[1])):
        finite = [value for value in values if math.isfinite(value)]
        tight = sum(value <= 1e-6 for value in values)
        print(
            f"{name:24}{fmean(finite or [math.nan]):9.2%}{median(values):9.2%}{max(finite or [math.nan]):9.2%}"
            f"{tight / len(values):8.1%}{1 - len(finite) / len(values):8.1%}{wins[name] / len(values):11.1%}"
        )
    print("mean and max leave out bounds of zero; tight: within 1e-6 of the optimum")


def print_plans(outcomes: list[Outcome], evaluations: int) -> None:
    """Print how far above the optimum compiled plans are, and which bound they carry."""
    print_excess(
        outcomes, f"compiled with {evaluations} evaluations", [outcome.plan_s for outcome in outcomes]
    )
    binding: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        if outcome.optimum_s and outcome.binding is not None:
            binding[outcome.binding] += 1
    counts = sorted(binding.items(), key=lambda item: -item[1])
    print("  binding bound: " + ", ".join(f"{name} {count}" for name, count in counts))


def print_excess(outcomes: list[Outcome], title: str, found: list[float | None]) -> None:
    """Print how far above the optimum plans are."""
    excess, missed = {}, []
    for outcome, makespan_s in zip(outcomes, found, strict=True):
        if outcome.optimum_s and makespan_s is not None:
            excess[outcome.seed] = makespan_s / outcome.optimum_s - 1
        elif outcome.optimum_s:
            missed.append(outcome.seed)
    print(f"\n{title}: a plan for {len(excess)} of {len(excess) + len(missed)}; missed: {sorted(missed)}")
    for label, most in (("optimal", TOLERANCE), ("within 1%", 0.01), ("within 5%", 0.05)):
        print(f"  {label:10}{sum(value <= most for value in excess.values()) / max(1, len(excess)):7.1%}")
    worst = sorted(excess.items(), key=lambda item: -item[1])[:5]
    print("  worst, by seed: " + ", ".join(f"{seed} {value:.2%}" for seed, value in worst))


if __name__ == "__main__":
    sys.exit(main())
