"""A plugin whose solvers each fail in a way of their own; tests give this file to a study."""

import os
import signal
import time

from octoplan_solvers import chain_dp
from octoplan_solvers.problem import Assignment
from octoplan_solvers.registry import Solver, SolverInfo
from octoplan_solvers.result import SolverResult


def crash(problem, **options):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(problem, **options):
    os._exit(7)


def sleep(problem, **options):
    time.sleep(600)


def swell(problem, **options):
    held = b"x" * 1_000_000_000
    time.sleep(600)
    return held


def fail(problem, **options):
    raise RuntimeError("on <b>purpose</b>")


def chatter(problem, **options):
    os.write(1, b'{"status": "ok"}\n')
    return chain_dp.solve_placement(problem, **options)


def miss(problem, **options):
    """Leave the last layer out."""
    layers, ranks = problem.num_layers - 1, problem.num_ranks
    assignment = Assignment.from_sizes([layers - ranks + 1, *([1] * (ranks - 1))], range(ranks))
    return SolverResult("feasible", "miss", 0, 0.0, assignment=assignment)


def claim(problem, **options):
    """Return the balanced partition with a bound that nobody can prove."""
    found = chain_dp.solve_placement(problem, **options).assignment
    return SolverResult("optimal", "claim", 0, 0.0, bound_s=0.9, objective_s=0.9, assignment=found)


def give_up(problem, **options):
    return SolverResult("unknown", "give-up", 0, 0.0)


SOLVERS = [
    Solver(SolverInfo(function.__name__, True, "1"), function)
    for function in (crash, leave, sleep, swell, fail, chatter, miss, claim, give_up)
]
