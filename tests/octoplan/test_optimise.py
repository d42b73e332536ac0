"""`optimise`: known plans are a floor, the gap ends the search, and it says what it is doing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import octoplan
from octoplan.compiler import limited_problem
from octoplan.optimise import WarmStart, optimise
from octoplan.ordering import one_microbatch_at_a_time
from octoplan_schemas import InputError, ModelGraph
from octoplan_solvers.problem import Assignment
from octoplan_solvers.staged import build_staged
from tests.builders import make_cluster, make_layer, make_model

OPTIONS = octoplan.CompileOptions(8, max_evaluations=300, memory_limit="none", max_stages_per_device=3)


def uneven_model() -> ModelGraph:
    times = np.random.default_rng(5).uniform(0.5, 2.0, size=(9, 3))
    return make_model(
        [make_layer(f"l{index}", *row.tolist(), output_bytes=1) for index, row in enumerate(times)]
    )


CLUSTER = make_cluster(3, latency_s=0.05, bandwidth=10.0)


def test_a_known_plan_is_a_floor() -> None:
    """A long search's plan, given to one that has a single evaluation, comes back or is bettered."""
    model = uneven_model()
    problem = limited_problem(model, CLUSTER, OPTIONS)
    found = optimise(problem, model, replace(OPTIONS, max_evaluations=2000))
    brief = replace(OPTIONS, max_evaluations=1, seed=1)
    cold = optimise(problem, model, brief)
    warm = optimise(problem, model, brief, warm=WarmStart(orders=found.warm_start().orders))
    assert cold.plan.makespan_s > found.plan.makespan_s
    assert warm.plan.makespan_s <= found.plan.makespan_s


def test_known_candidates_keep_their_policies() -> None:
    model = uneven_model()
    problem = limited_problem(model, CLUSTER, OPTIONS)
    found = optimise(problem, model, replace(OPTIONS, max_evaluations=2000))
    brief = replace(OPTIONS, max_evaluations=1, seed=1)
    warm = optimise(problem, model, brief, warm=WarmStart(candidates=found.warm_start().candidates))
    best = min(candidate.makespan_s for candidate in found.trace.elite)
    assert warm.trace.elite[0].makespan_s <= best * (1 + 1e-12)


def test_known_plans_that_break_a_limit_are_not_taken() -> None:
    model = uneven_model()
    free = limited_problem(model, CLUSTER, OPTIONS)
    found = optimise(free, model, replace(OPTIONS, max_evaluations=100))
    peak = float(found.plan.simulation.memory.peak_bytes.max())
    tight = replace(free, memory_limit_bytes=np.full(3, 0.6 * peak))
    again = optimise(tight, model, replace(OPTIONS, max_evaluations=100), warm=found.warm_start())
    assert not again.plan.excess_bytes().any()
    assert again.plan.makespan_s >= found.plan.makespan_s


def test_a_known_plan_that_is_good_enough_ends_everything() -> None:
    """One microbatch at a time on one rank has no bubbles: nothing is searched."""
    model, cluster = uneven_model(), make_cluster(1)
    problem = limited_problem(model, cluster, OPTIONS)
    whole = Assignment.from_sizes([9], [0])
    order = one_microbatch_at_a_time(build_staged(problem, whole))
    found = optimise(problem, model, OPTIONS, warm=WarmStart(orders=((whole, order),)))
    assert found.trace.entries == []
    assert found.certificate.master is None


def test_a_wider_gap_ends_sooner() -> None:
    model = uneven_model()
    evaluations = {}
    for gap in (0.0, 0.15):
        counted: list[int] = []
        options = replace(
            OPTIONS,
            max_evaluations=3000,
            gap=gap,
            on_progress=lambda progress, counted=counted: counted.append(progress.num_evaluations),
        )
        plan = octoplan.compile_plan(model, CLUSTER, options)
        evaluations[gap] = max(counted)
        if gap:
            assert plan.predicted.gap is not None
            assert plan.predicted.gap <= gap
    assert evaluations[0.15] < evaluations[0.0]


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.01", 0.01), (0.25, 0.25), (0, 0.0), ("0%", 0.0)]
)
def test_gaps_as_text(text: str | float, share: float) -> None:
    assert octoplan.compile_options(None, microbatches=4, gap=text).gap == pytest.approx(share)


@pytest.mark.parametrize("text", ["-1%", "1%%", "much", "", "nan", "inf", "-0.1"])
def test_bad_gaps_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="gap"):
        octoplan.compile_options(None, microbatches=4, gap=text)


def test_progress_names_phases_in_order_and_makespans_fall() -> None:
    model = uneven_model()
    seen: list[octoplan.Progress] = []
    options = octoplan.CompileOptions(
        8, time_limit_s=2.0, memory_limit="none", max_stages_per_device=3, on_progress=seen.append
    )
    plan = octoplan.compile_plan(model, CLUSTER, options)
    phases = list(dict.fromkeys(progress.phase for progress in seen))
    order = ["baselines", "bound", "search", "finish", "proof"]
    assert [phase for phase in order if phase in phases] == phases[1:]
    best = [progress.best_makespan_s for progress in seen if progress.best_makespan_s is not None]
    assert best == sorted(best, reverse=True)
    assert best[-1] >= plan.predicted.makespan_s * (1 - 1e-9)
    searching = [progress for progress in seen if progress.phase == "search" and progress.dimension]
    assert searching
    assert {progress.dimension for progress in searching} <= {"start", "order", "partition", "placement"}
    assert all(progress.left_s is not None and 0 <= progress.spent <= 1 for progress in seen[1:])


def test_no_time_at_all_still_gives_a_plan() -> None:
    model = uneven_model()
    plan = octoplan.compile_plan(model, CLUSTER, octoplan.CompileOptions(8, time_limit_s=0.0))
    assert octoplan.check(plan, model, CLUSTER) == []


@pytest.mark.parametrize("phase", ["baselines", "bound", "search", "finish"])
def test_stopped_in_any_phase_it_returns_a_valid_plan(phase: str) -> None:
    model = uneven_model()
    reached = []

    def watch(progress: octoplan.Progress) -> None:
        if progress.phase == phase:
            reached.append(progress)

    options = octoplan.CompileOptions(
        8, time_limit_s=3.0, on_progress=watch, should_stop=lambda: bool(reached), max_stages_per_device=3
    )
    plan = octoplan.compile_plan(model, CLUSTER, options)
    assert reached
    assert octoplan.check(plan, model, CLUSTER) == []
    assert (plan.provenance.model_extra or {})["interrupted"] is True
