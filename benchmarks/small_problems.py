"""How often the tuner alone finds the optimum of small problems, where Benders decomposition can prove it.

``python -m benchmarks.small_problems [--problems 100] [--first-seed 0] [--processes 2] [--evaluations 4000]
[--proof-seconds 20]``

From the repository's root. Problems are random: up to 10 layers, 2 to 4 ranks of different speed, 2 to 8 microbatches,
transfers, skips, memory limits. The tuner runs for a number of evaluations, without any proof; then the proof starts
from its plan. A problem counts as proved if bound and makespan meet.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

import numpy as np

from octoplan import CompileOptions, InfeasibleError
from octoplan.optimise import optimise
from octoplan.proof import prove
from tests.tiny_problems import TinyProblem, random_tiny_problem

#: Relative difference of two makespans that is rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Outcome:
    """Makespans of the tuner alone and after the proof, the bound, and the tuner's seconds; None: nothing fits."""

    seed: int
    size: str
    tuner_s: float | None = None
    best_s: float | None = None
    bound_s: float = 0.0
    seconds: float = 0.0

    @property
    def is_proved(self) -> bool:
        """True if no plan is better than the best one known."""
        return self.best_s is None or self.bound_s >= self.best_s * (1 - _ROUNDING)

    @property
    def excess(self) -> float:
        """How much longer the tuner's plan is than the best one known, as a share."""
        if self.best_s is None or self.best_s == 0:
            return 0.0
        return float("inf") if self.tuner_s is None else self.tuner_s / self.best_s - 1


def main() -> None:
    """Print one line per problem, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--evaluations", type=int, default=4000)
    parser.add_argument("--proof-seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    seeds = list(islice(filter(is_pipeline, count(arguments.first_seed)), arguments.problems))
    run = partial(examine, evaluations=arguments.evaluations, proof_seconds=arguments.proof_seconds)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        outcomes = []
        for outcome in pool.imap_unordered(run, seeds):
            outcomes.append(outcome)
            report(outcome)
    summarise(outcomes)


def small_problem(seed: int) -> TinyProblem:
    """Draw a problem."""
    return random_tiny_problem(seed, max_layers=10, max_ranks=4, max_microbatches=8)


def is_pipeline(seed: int) -> bool:
    """True if there is anything to decide: several ranks, several microbatches."""
    problem = small_problem(seed)
    return problem.cluster.num_ranks > 1 and problem.num_microbatches > 1


def examine(seed: int, *, evaluations: int, proof_seconds: float) -> Outcome:
    """Tune and prove one problem."""
    tiny = small_problem(seed)
    problem = tiny.problem(np.array(tiny.limits))
    size = f"{problem.num_layers} layers, {problem.num_ranks} ranks, {problem.num_microbatches} microbatches"
    options = CompileOptions(tiny.num_microbatches, max_evaluations=evaluations)
    started = time.monotonic()
    try:
        found = optimise(problem, tiny.model, options)
        plan, bound_s = found.plan, found.certificate.bound.seconds
    except InfeasibleError:
        plan, bound_s = None, 0.0
    seconds = time.monotonic() - started
    best = plan
    if plan is None or bound_s < plan.makespan_s * (1 - _ROUNDING):
        best, bound = prove(problem, plan, time_limit_s=proof_seconds, seed=0)
        bound_s = max(bound_s, bound.seconds)
    return Outcome(
        seed,
        size,
        None if plan is None else plan.makespan_s,
        None if best is None else best.makespan_s,
        bound_s,
        seconds,
    )


def report(outcome: Outcome) -> None:
    """Print one problem's line."""
    if outcome.best_s is None:
        line = "nothing fits"
    else:
        tuned = "nothing" if outcome.tuner_s is None else f"{outcome.tuner_s:.6g}"
        line = (
            f"tuner {tuned}, best {outcome.best_s:.6g} (+{outcome.excess:.3%}), bound {outcome.bound_s:.6g}"
        )
    state = "proved" if outcome.is_proved else "open"
    print(f"{outcome.seed:4d} {state:6s} {line}  [{outcome.size}; {outcome.seconds:.1f} s]", flush=True)


def summarise(outcomes: list[Outcome]) -> None:
    """Print how many are proved, and how the tuner does on these and on all."""
    for name, group in (("proved", [one for one in outcomes if one.is_proved]), ("all", outcomes)):
        exact = sum(one.excess <= _ROUNDING for one in group)
        close = sum(one.excess <= 0.01 for one in group)
        worst = max((one.excess for one in group), default=0.0)
        print(
            f"{name}: {len(group)} problems, tuner optimal on {exact}, within 1% on {close}, worst +{worst:.3%}"
        )


if __name__ == "__main__":
    main()
