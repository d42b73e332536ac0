"""Annealing over some of the three dimensions: what each of them is worth, alone and on top of the others.

Every subset starts from the same plan (`Workbench.start`), and gets the same temperatures, time and kind of steps; a
dimension that is not searched stays as in that plan. There is no placement solver, no baseline and no large
neighbourhood behind it, so that the searched dimensions alone make the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from octoplan.certificate import strongest_formula
from octoplan.compile_options import CompileOptions, check_compile_options
from octoplan.study.finished import finished_plan
from octoplan.study.restricted.moves import move_order, move_partition, move_placement
from octoplan.study.restricted.workbench import Workbench
from octoplan.tuner import Candidate
from octoplan.tuner.elite import Elite
from octoplan_schemas import Cluster, ModelGraph, Plan

#: Share of the budget at which a pass ends, and its first and last temperature as shares of the makespan.
_PASSES = ((0.45, 0.004, 0.0003), (0.75, 0.002, 0.0001), (1.0, 0.001, 0.00003))


def dimension_plan(
    dimensions: Sequence[str], model: ModelGraph, cluster: Cluster, options: CompileOptions
) -> Plan:
    """Return the best plan that changes the starting plan in ``dimensions`` alone; with none, that plan itself.

    Raises
    ------
    InputError
        If the model has too few layers for a uniform partition.
    InfeasibleError
        If no plan was found that fits.
    """
    check_compile_options(options)
    bench = Workbench.of(model, cluster, options, searches_order="order" in dimensions)
    elite = Elite()
    start = bench.start()
    elite.add(start)
    bench.report(start)
    if dimensions:
        random = np.random.default_rng(options.seed)
        for until, hot, cold in _PASSES:
            _anneal(bench, elite, dimensions, random, until, hot, cold)
    best = bench.best_plan(elite.members)
    provenance = {"strategy": f"search:{'+'.join(dimensions) or 'none'}", "seed": options.seed}
    return finished_plan(model, cluster, options, best, strongest_formula(bench.problem), provenance)


def _anneal(
    bench: Workbench,
    elite: Elite,
    dimensions: Sequence[str],
    random: np.random.Generator,
    until: float,
    hot: float,
    cold: float,
) -> None:
    """Walk from the best candidate until a share of the budget is spent; every step tried is an evaluation."""
    current = elite.members[0]
    begin = bench.budget.spent()
    while (spent := bench.budget.spent()) < until:
        temperature = hot * (cold / hot) ** ((spent - begin) / (until - begin))
        allowed = current.makespan_s * (1 - temperature * math.log(1 - random.random()))
        moved = _step(bench, current, dimensions, random)
        if moved is current or not bench.admits(moved):
            bench.budget.evaluations += 1
            continue
        moved = bench.priced(moved, allowed)
        if moved.makespan_s <= allowed:
            current = moved
            if elite.add(moved):
                bench.report(moved)


def _step(
    bench: Workbench, current: Candidate, dimensions: Sequence[str], random: np.random.Generator
) -> Candidate:
    dimension = dimensions[int(random.integers(len(dimensions)))]
    if dimension == "partition":
        return move_partition(current, random)
    if dimension == "placement":
        return move_placement(bench, current, random, free_cuts="partition" in dimensions)
    return move_order(current, random)
