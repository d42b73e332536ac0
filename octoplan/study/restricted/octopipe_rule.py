"""The phase rule that OctoPipe describes, as a method to compare with.

What is the paper's: a loop that simulates the plan, looks at its bubbles, tunes the partition while load imbalance is
the largest of them, else placement, else the order, keeps what is shorter and rolls back what is not, and ends when
the phase that it chose finds nothing better.

What is ours, where the description leaves it open:

* The bubbles of a plan. Let b be the rank with the most work. Imbalance: over all ranks, the work that they have less
  than b. Placement: idle time of b before its first and after its last op, times the number of ranks. Order: idle
  time of b between its ops, times the number of ranks. The three add up to all idle time.
* The start: a uniform partition on the loop placement with one stage per rank, and again with two, three and so on,
  up to what the job admits; the best end counts. Each starts with the best rule of list scheduling's portfolio.
* The steps of a phase, of which the best one is taken. Partition: one boundary by one layer. Placement: two stages swap
  ranks, a stage changes its rank, or a stage is cut in the middle and its second half goes to another rank; to the best
  of these the portfolio is applied again. Order: `_ORDER_STEPS` random steps of the ordering policy.

With equal layers nothing is imbalanced, so the partition is never touched; and there is no way back from a phase
that is stuck. `octoplan` differs in just that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from octoplan.baselines.schedule import loop_placement
from octoplan.certificate import strongest_formula
from octoplan.compile_options import CompileOptions, check_compile_options
from octoplan.errors import InfeasibleError
from octoplan.ordering import OrderedPlan
from octoplan.simulator import Simulation, attribute_bubbles
from octoplan.study.finished import finished_plan
from octoplan.study.restricted.moves import add_stage, move_order
from octoplan.study.restricted.workbench import Workbench
from octoplan.tuner import Candidate, Pricer
from octoplan_schemas import Cluster, ModelGraph, Plan
from octoplan_solvers.problem import Assignment

_ROUNDING = 1e-12
#: Neighbouring policies that an order phase tries before it takes the best.
_ORDER_STEPS = 100


def octopipe_plan(model: ModelGraph, cluster: Cluster, options: CompileOptions) -> Plan:
    """Return the best plan at which the rule ends, or which it has when the limit is reached.

    Raises
    ------
    InputError
        If the model has too few layers for a uniform partition.
    InfeasibleError
        If no starting plan fits.
    """
    check_compile_options(options)
    bench = Workbench.of(model, cluster, options)
    random = np.random.default_rng(options.seed)
    ends = [end for start in _starts(bench) if (end := _follow(bench, start, random)) is not None]
    if not ends:
        raise InfeasibleError("no starting plan of the rule fits into memory")
    plan, phases = min(ends, key=lambda end: end[0].makespan_s)
    provenance = {"strategy": "rule:octopipe", "phases": phases, "seed": options.seed}
    return finished_plan(model, cluster, options, plan, strongest_formula(bench.problem), provenance)


def _starts(bench: Workbench) -> Iterator[Candidate]:
    """Yield uniform partitions on loop placements, ordered by the portfolio's best rule."""
    num_ranks = bench.problem.num_ranks
    for per_rank in range(1, bench.most_uniform_stages() // num_ranks + 1):
        sizes = np.diff(bench.uniform_cuts(num_ranks * per_rank)).tolist()
        start = _ordered(bench, Assignment.from_sizes(sizes, loop_placement(num_ranks, per_rank)))
        if start is not None:
            yield start


def _follow(
    bench: Workbench, point: Candidate, random: np.random.Generator
) -> tuple[OrderedPlan, list[str]] | None:
    """Follow the rule from one start; return where it ends and the phases it went through."""
    plan = bench.exact(point)
    phases: list[str] = []
    while plan is not None:
        bench.report(replace(point, makespan_s=plan.makespan_s))
        if bench.budget.spent() >= 1:
            break
        phases.append(largest_bubble(plan.simulation))
        better = _best_step(bench, point, plan, phases[-1], random)
        if better is None:
            break  # here the published rule ends
        point, plan = better
    return None if plan is None else (plan, phases)


def _ordered(bench: Workbench, assignment: Assignment) -> Candidate | None:
    """Return an assignment with the best rule of the portfolio; that is one evaluation."""
    bench.budget.evaluations += 1
    return Pricer(bench.problem).best(assignment)


def largest_bubble(simulation: Simulation) -> str:
    """Return the dimension that the largest bubble points to."""
    shares = bubbles(simulation)
    return max(shares, key=lambda name: shares[name])


def bubbles(simulation: Simulation) -> dict[str, float]:
    """Return idle seconds over all ranks by the dimension they point to; they add up to all idle time."""
    busy = simulation.busy_s
    busiest = int(np.argmax(busy))
    edges, gaps = attribute_bubbles(simulation).by_rank_s[busiest].tolist()
    return {
        "partition": float((busy[busiest] - busy).sum()),
        "placement": len(busy) * edges,
        "order": len(busy) * gaps,
    }


def _best_step(
    bench: Workbench, point: Candidate, plan: OrderedPlan, phase: str, random: np.random.Generator
) -> tuple[Candidate, OrderedPlan] | None:
    """Return the best step of a phase and its exact plan, or None if that is not shorter than ``plan``."""
    best: Candidate | None = None
    for step in _steps(bench, point, phase, random):
        if bench.budget.spent() >= 1:
            break
        if step is point or not bench.admits(step):
            continue
        priced = bench.priced(step, np.inf if best is None else best.makespan_s)
        if best is None or priced.makespan_s < best.makespan_s:
            best = priced
    if best is None or np.isinf(best.makespan_s):
        return None
    again = None if phase == "order" else _ordered(bench, best.assignment)
    tried = [(step, bench.exact(step)) for step in (best, again) if step is not None]
    fitting = [(step, exact) for step, exact in tried if exact is not None]
    step, exact = min(fitting, key=lambda pair: pair[1].makespan_s, default=(best, plan))
    return (step, exact) if exact.makespan_s < plan.makespan_s * (1 - _ROUNDING) else None


def _steps(
    bench: Workbench, point: Candidate, phase: str, random: np.random.Generator
) -> Iterator[Candidate]:
    if phase == "partition":
        return _partitions(point)
    if phase == "placement":
        return _placements(bench, point)
    return (move_order(point, random) for _ in range(_ORDER_STEPS))


def _partitions(point: Candidate) -> Iterator[Candidate]:
    for boundary in range(1, len(point.cuts) - 1):
        for step in (-1, 1):
            cuts = point.cuts.copy()
            cuts[boundary] += step
            yield replace(point, cuts=cuts)


def _placements(bench: Workbench, point: Candidate) -> Iterator[Candidate]:
    stages, ranks = range(len(point.ranks)), range(bench.problem.num_ranks)
    for one, other in combinations(stages, 2):
        swapped = point.ranks.copy()
        swapped[one], swapped[other] = swapped[other], swapped[one]
        yield replace(point, ranks=swapped)
    for stage in stages:
        for rank in ranks:
            changed = point.ranks.copy()
            changed[stage] = rank
            yield replace(point, ranks=changed)
            yield add_stage(bench, point, stage, rank, free_cuts=True)
