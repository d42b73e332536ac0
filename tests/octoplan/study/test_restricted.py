"""Restricted searches: what is not searched stays, and the rule stops where it must."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import octoplan
from octoplan.baselines import build_schedule, uniform_boundaries
from octoplan.checking import simulate
from octoplan.study.generator import random_pair
from octoplan.study.restricted import dimension_plan, octopipe_plan
from octoplan.study.restricted.octopipe_rule import bubbles
from octoplan_schemas import Cluster, Constraint, ModelGraph, Plan, parse_word
from tests.octoplan.study.suites import SUBSETS

MICROBATCHES = 6
OPTIONS = octoplan.CompileOptions(MICROBATCHES, memory_limit="1f1b:1.5", max_evaluations=600)


@pytest.fixture(scope="module")
def pair() -> tuple[ModelGraph, Cluster]:
    """Return a model with a heavy head on three devices, one of them slow."""
    drawn = random_pair(
        {
            "layers": 10, "ranks": 3, "seeds": 4, "layer_heterogeneity": 0.6, "head_weight": 3.0,
            "slow_share": 0.3, "slow_factor": 1.5, "transfer_share": 0.1, "tightness": 2.0,
        }
    )  # fmt: skip
    return drawn.model, drawn.cluster


@pytest.fixture(scope="module")
def plans(pair: tuple[ModelGraph, Cluster]) -> dict[str, Plan]:
    return {"+".join(subset): dimension_plan(subset, *pair, OPTIONS) for subset in SUBSETS}


def compute_words(plan: Plan) -> list[list[str]]:
    return [[word for word in program if parse_word(word).is_compute] for program in plan.programs]


def is_uniform(plan: Plan, model: ModelGraph) -> bool:
    expected = uniform_boundaries([layer.kind for layer in model.layers], len(plan.stages))
    return [stage.layers for stage in plan.stages] == expected


def is_one_stage_each(plan: Plan) -> bool:
    return [stage.rank for stage in plan.stages] == list(range(plan.num_ranks))


def splits(plan: Plan) -> bool:
    return any("I" in word or "W" in word for program in compute_words(plan) for word in program)


def test_with_no_dimension_it_is_1f1b(pair: tuple[ModelGraph, Cluster], plans: dict[str, Plan]) -> None:
    published = octoplan.compile_plan(*pair, replace(OPTIONS, strategy="1f1b"))
    assert plans[""].stages == published.stages
    assert compute_words(plans[""]) == compute_words(published)
    assert plans[""].predicted.makespan_s == published.predicted.makespan_s


@pytest.mark.parametrize("subset", SUBSETS, ids="+".join)
def test_what_is_not_searched_stays(
    pair: tuple[ModelGraph, Cluster], plans: dict[str, Plan], subset: list[str]
) -> None:
    plan = plans["+".join(subset)]
    assert octoplan.check(plan, *pair) == []
    if "partition" not in subset:
        assert is_uniform(plan, pair[0])
    if "placement" not in subset:
        assert is_one_stage_each(plan)
    if "order" not in subset:
        assert not splits(plan)
    if "order" not in subset and "placement" not in subset:
        schedule = build_schedule("1f1b", plan.num_ranks, MICROBATCHES)
        expected = [[f"{stage}{kind}{index}" for stage, kind, index in order] for order in schedule.orders]
        assert compute_words(plan) == expected


def test_every_dimension_is_worth_something_here(plans: dict[str, Plan]) -> None:
    seconds = {name: plan.predicted.makespan_s for name, plan in plans.items()}
    for name in ("partition", "order", "partition+order", "partition+placement"):
        assert seconds[name] < seconds[""]
    assert all(seconds[name] <= seconds[""] for name in seconds)
    assert plans["partition"].stages != plans[""].stages
    assert splits(plans["order"])
    assert not is_one_stage_each(plans["partition+placement"])


def test_a_search_is_reproducible_and_its_seed_matters(pair: tuple[ModelGraph, Cluster]) -> None:
    subset = ["partition", "placement", "order"]
    one, same = (dimension_plan(subset, *pair, OPTIONS) for _ in range(2))
    assert one == same
    others = [dimension_plan(subset, *pair, replace(OPTIONS, seed=seed)) for seed in (1, 2, 3)]
    assert any(other.programs != one.programs for other in others)


def test_constraints_of_the_job_are_kept(pair: tuple[ModelGraph, Cluster]) -> None:
    model, cluster = pair
    constraint = Constraint.model_validate(
        {"pin": {"layers": [model.layers[0].name], "rank": 2}}, strict=False
    )
    options = replace(OPTIONS, constraints=(constraint,), max_evaluations=3000)
    plan = dimension_plan(["partition", "placement", "order"], model, cluster, options)
    assert plan.stages[0].rank == 2


def test_bubbles_of_the_rule_add_up_to_all_idle_time(
    pair: tuple[ModelGraph, Cluster], plans: dict[str, Plan]
) -> None:
    for plan in plans.values():
        simulation = simulate(plan, *pair)
        shares = bubbles(simulation)
        idle = plan.num_ranks * simulation.makespan_s - simulation.busy_s.sum()
        assert sum(shares.values()) == pytest.approx(idle)
        assert shares["partition"] == pytest.approx((simulation.busy_s.max() - simulation.busy_s).sum())
        assert min(shares.values()) > -1e-12


def test_the_rule_never_tunes_the_partition_of_equal_layers() -> None:
    """One of its known holes: nothing is imbalanced, so the partition is never looked at."""
    drawn = random_pair(
        {
            "layers": 12, "ranks": 3, "seeds": 0, "layer_heterogeneity": 0.0, "head_weight": 1.0,
            "slow_share": 0.0, "slow_factor": 1.0, "transfer_share": 0.0, "tightness": 3.0,
        }
    )  # fmt: skip
    model = drawn.model.model_copy(update={"layers": drawn.model.layers[1:-1]})
    equal = tuple(
        layer.model_copy(update={"cost": model.layers[0].cost, "state_bytes": 1, "activation_bytes": 1})
        for layer in model.layers
    )
    model = model.model_copy(update={"layers": equal})
    plan = octopipe_plan(model, drawn.cluster, OPTIONS)
    assert octoplan.check(plan, model, drawn.cluster) == []
    assert "partition" not in (plan.provenance.model_extra or {})["phases"][:1]


def test_the_rule_improves_on_every_start_and_follows_the_largest_bubble(
    pair: tuple[ModelGraph, Cluster],
) -> None:
    options = replace(OPTIONS, max_evaluations=5000)
    seen: list[float] = []
    plan = octopipe_plan(
        *pair, replace(options, on_progress=lambda told: seen.append(told.best_makespan_s or 0))
    )
    phases = (plan.provenance.model_extra or {})["phases"]
    assert octoplan.check(plan, *pair) == []
    assert set(phases) <= {"partition", "placement", "order"}
    assert phases
    assert plan.predicted.makespan_s == pytest.approx(min(seen))
    rises = sum(later > earlier for earlier, later in pairwise(seen))
    assert rises < 4, "within a run of the rule every step is shorter; there are at most four starts"
    start = dimension_plan([], *pair, options)
    assert plan.predicted.makespan_s < start.predicted.makespan_s


def test_limits_end_a_search(pair: tuple[ModelGraph, Cluster]) -> None:
    stopped = replace(OPTIONS, max_evaluations=None, time_limit_s=60, should_stop=lambda: True)
    start = dimension_plan([], *pair, OPTIONS).predicted.makespan_s
    assert dimension_plan(["order"], *pair, stopped).predicted.makespan_s == start
    assert np.isfinite(octopipe_plan(*pair, stopped).predicted.makespan_s)
