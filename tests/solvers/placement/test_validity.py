"""The bound holds against the true optimum over every partition, placement and order of tiny problems."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from octoplan.job_constraints import placement_constraints
from octoplan_schemas import Constraint
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.problem import Assignment
from octoplan_solvers.registry import solve_assignment
from tests.exhaustive import Optimum, find_optimum
from tests.tiny_problems import TinyProblem, random_tiny_problem

#: Room for rounding; a bound above the optimum by more is wrong.
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_is_shorter_than_the_bound(seed: int) -> None:
    tiny = random_tiny_problem(seed, max_layers=5, max_microbatches=2)
    asked = _constraints(tiny) if seed % 2 else ()
    made = _made(tiny, asked)
    problem = replace(tiny.problem(np.array(tiny.limits)), constraints=made)
    result = solve_assignment(problem, time_limit_s=60, num_workers=1)
    optimum = _optimum(tiny, asked)
    plan = None if optimum is None else optimum.plan
    if result.status == "infeasible":
        assert plan is None
        assert result.conflict
    if optimum is None or plan is None:
        return
    assert result.bound_s is not None
    assert result.bound_s <= optimum.lower_s * ROUNDING
    best = Assignment(
        tuple(stage.layers for stage in plan.stages), tuple(stage.rank for stage in plan.stages)
    )
    assert check_assignment(problem, best) == []
    assert assignment_bound(problem, best) <= plan.predicted.makespan_s * ROUNDING


def _made(tiny: TinyProblem, asked: tuple[Constraint, ...]) -> PlacementConstraints:
    return placement_constraints(
        asked,
        [layer.name for layer in tiny.model.layers],
        num_ranks=tiny.cluster.num_ranks,
        max_stages_per_rank=tiny.max_stages_per_device,
    )


def _optimum(tiny: TinyProblem, asked: tuple[Constraint, ...]) -> Optimum | None:
    return find_optimum(
        tiny.model,
        tiny.cluster,
        num_microbatches=tiny.num_microbatches,
        backward=tiny.backward,
        max_stages_per_device=tiny.max_stages_per_device,
        memory_limit_bytes=tiny.limits,
        constraints=asked,
    )


def _constraints(tiny: TinyProblem) -> tuple[Constraint, ...]:
    """Draw one or two constraints that do not contradict each other by themselves."""
    random = Random(tiny.seed)
    names = [layer.name for layer in tiny.model.layers]
    first = random.randrange(len(names) - 1)
    choices: list[dict[str, object]] = [
        {"pin": {"layers": [random.choice(names)], "rank": random.randrange(tiny.cluster.num_ranks)}},
        {"same_rank": random.sample(names, 2)},
        {"same_stage": names[first : first + 2]},
        {"boundary_after": random.choice(names)},
        {"stages_per_rank": {"equal": True}},
        {"stages_per_rank": {"max": random.randint(1, 2)}},
    ]
    if tiny.cluster.num_ranks > 1:
        choices.append({"different_rank": random.sample(names, 2)})
    one, two = random.sample(choices, 2)
    # Two of these may contradict each other, which is refused before any solver sees it.
    delicate = {"different_rank", "same_stage", "boundary_after"}
    drawn = [one] if len(delicate & {*one, *two}) > 1 or "different_rank" in {*one, *two} else [one, two]
    return tuple(Constraint.model_validate_json(json.dumps(entry)) for entry in drawn)
