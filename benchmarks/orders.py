"""How good and how fast the searches for an order are: ``python benchmarks/orders.py [--only exact|lns|periodic]``.

Seven problems with one stage per rank, a transfer latency of 0.1, and room for a few microbatches, each of which is
held from the start of F to the end of W; their optima are known. Exact: CP-SAT with a proof. LNS: the search by
large neighbourhoods from the best list schedule. Periodic: one repeating unit, drawn out to 128 and to 4,096
microbatches, beside the best list schedule of as many. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from octoplan.ordering import run_order
from octoplan_solvers.order import Order
from octoplan_solvers.order_search import improve_order, periodic_order, solve_order, starting_order
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import StagedProblem, build_staged

UNEQUAL = {"forward": (1, 2.2, 1.6, 0.8), "weight": (0.9, 1.4, 1.2, 0.8)}
V_OF_8, LOOP_OF_8 = (*range(8), *range(7, -1, -1)), (*range(8), *range(8))


@dataclass(frozen=True)
class Problem:
    """A name, what is to be ordered, and the known optimum in seconds."""

    name: str
    staged: StagedProblem
    optimum_s: float | None = None


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("exact", "lns", "periodic"))
    parser.add_argument("--exact-limit", type=float, default=120.0, help="seconds per problem")
    parser.add_argument("--lns-limit", type=float, default=20.0, help="seconds per problem")
    parser.add_argument("--workers", type=int, default=2, help="of CP-SAT, in the exact search")
    arguments = parser.parse_args()
    warm_up()
    if arguments.only in (None, "exact"):
        print_exact(arguments.exact_limit, arguments.workers)
    if arguments.only in (None, "lns"):
        print_lns(arguments.lns_limit)
    if arguments.only in (None, "periodic"):
        print_periodic()


def known_optima() -> list[Problem]:
    """Return the seven problems."""
    return [
        Problem("4 ranks, room for 2", equal_sizes(range(4), 16, 2), 84.6),
        Problem("4 ranks, room for 3", equal_sizes(range(4), 16, 3), 60.6),
        Problem("8 ranks, room for 4", equal_sizes(range(8), 16, 4), 84.8),
        Problem("8 ranks, room for 6", equal_sizes(range(8), 16, 6), 65.4),
        Problem("4 unequal, room for 2", equal_sizes(range(4), 16, 2, **UNEQUAL), 118.7),
        Problem("4 unequal, room for 3", equal_sizes(range(4), 16, 3, **UNEQUAL), 95.1),
        Problem("4 unequal, room for 4", equal_sizes(range(4), 16, 4, **UNEQUAL), 93.9),
    ]


def equal_sizes(
    placement: Sequence[int],
    num_microbatches: int,
    room: float,
    *,
    forward: Sequence[float] = (1.0,),
    weight: Sequence[float] = (1.0,),
) -> StagedProblem:
    """Return stages that hold one unit per microbatch from F to the end of W; F and I take equally long."""
    num_stages, num_ranks = len(placement), max(placement) + 1
    none, one = np.zeros(num_stages), np.ones(num_stages)
    forward_s = np.broadcast_to(np.asarray(forward, dtype=float), num_stages)[None].copy()
    problem = PipelineProblem(
        forward_s=forward_s,
        backward_input_s=forward_s,
        backward_weight_s=np.broadcast_to(np.asarray(weight, dtype=float), num_stages)[None].copy(),
        rank_type=np.zeros(num_ranks, dtype=np.int64),
        op_overhead_s=np.zeros(num_ranks),
        state_bytes=none,
        activation_bytes=one,
        retained_bytes=one,
        weight_stash_bytes=none,
        workspace_bytes=none,
        output_bytes=none,
        skip_source=np.zeros(0, dtype=np.int64),
        skip_destination=np.zeros(0, dtype=np.int64),
        skip_bytes=np.zeros(0),
        latency_s=np.full((num_ranks, num_ranks), 0.1),
        bandwidth=np.full((num_ranks, num_ranks), np.inf),
        num_microbatches=num_microbatches,
        split_backward=True,
        max_stages_per_rank=num_stages,
        memory_limit_bytes=np.full(num_ranks, float(room)),
    )
    return build_staged(problem, Assignment.from_sizes([1] * num_stages, placement))


def evaluator(staged: StagedProblem) -> Callable[[Order], float | None]:
    """Price by exact simulation."""

    def evaluate(order: Order) -> float | None:
        plan = run_order(staged, order)
        return None if plan.excess_bytes().any() else plan.makespan_s

    return evaluate


def listed(staged: StagedProblem) -> tuple[Order, float]:
    """Return the best list schedule of the portfolio, and its makespan."""
    order = starting_order(staged)
    makespan_s = None if order is None else evaluator(staged)(order)
    assert order is not None
    assert makespan_s is not None
    return order, makespan_s


def warm_up() -> None:
    """Compile the kernels."""
    staged = equal_sizes(range(2), 60, 2)
    improve_order(staged, listed(staged)[0], evaluator(staged), iterations=1)
    periodic_order(staged, evaluator(staged), policy_evaluations=1, effort_s=0.01)


def print_exact(limit_s: float, workers: int) -> None:
    """Print what CP-SAT proves."""
    print(f"\nexact, {workers} workers, at most {limit_s:g} s")
    print(f"{'problem':24}{'known':>8}{'listed':>8}{'found':>8}{'bound':>8}  {'status':10}{'seconds':>8}")
    for problem in known_optima():
        _, listed_s = listed(problem.staged)
        found = solve_order(
            problem.staged, evaluator(problem.staged), time_limit_s=limit_s, num_workers=workers
        )
        assert found.objective_s is not None
        print(
            f"{problem.name:24}{problem.optimum_s:8.1f}{listed_s:8.1f}{found.objective_s:8.1f}"
            f"{found.bound_s or 0.0:8.1f}  {found.status:10}{found.seconds:8.1f}"
        )


def print_lns(limit_s: float) -> None:
    """Print how close large-neighbourhood search comes, and when."""
    print(f"\nlarge neighbourhoods, 1 worker, at most {limit_s:g} s")
    print(f"{'problem':24}{'known':>8}{'listed':>8}{'found':>8}{'gap':>8}{'after s':>9}{'seconds':>9}")
    for problem in known_optima():
        order, listed_s = listed(problem.staged)
        found = improve_order(problem.staged, order, evaluator(problem.staged), time_limit_s=limit_s)
        assert found.objective_s is not None
        assert problem.optimum_s is not None
        gap = found.objective_s / problem.optimum_s - 1
        print(
            f"{problem.name:24}{problem.optimum_s:8.1f}{listed_s:8.1f}{found.objective_s:8.1f}"
            f"{gap:8.2%}{found.trace[-1][0]:9.1f}{found.seconds:9.1f}"
        )


def print_periodic() -> None:
    """Print time and bubble fraction for few and for many microbatches."""
    print(f"\nperiodic{'':>28}{'bubble':>9}{'seconds':>9}{'listed':>9}{'seconds':>9}")
    problems = [
        *known_optima(),
        Problem("8 ranks, no limit", equal_sizes(range(8), 16, np.inf)),
        Problem("8 ranks, V, room for 8", equal_sizes(V_OF_8, 16, 8)),
        Problem("8 ranks, loop, room for 12", equal_sizes(LOOP_OF_8, 16, 12)),
    ]
    for problem in problems:
        for number in (128, 4096):
            staged = replace(problem.staged, num_microbatches=number)
            found = periodic_order(staged, evaluator(staged))
            began = time.perf_counter()
            _, listed_s = listed(staged)
            seconds = time.perf_counter() - began
            assert found.objective_s is not None
            work = staged.duration_s[:, :3].sum() * number / staged.num_ranks
            print(
                f"{problem.name:28}{number:8}{1 - work / found.objective_s:9.4f}{found.seconds:9.2f}"
                f"{1 - work / listed_s:9.4f}{seconds:9.2f}"
            )


if __name__ == "__main__":
    main()
