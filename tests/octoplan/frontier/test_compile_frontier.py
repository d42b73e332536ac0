"""`compile_frontier`: against the true optimum at every limit, valid plan by plan, the same bytes every time."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import octoplan
from octoplan import Frontier, compile_frontier, write_frontier
from octoplan.frontier import tracing
from octoplan.memory_limit import MemoryLimit
from octoplan_schemas import Cluster, InputError, ModelGraph
from tests import exhaustive
from tests.builders import make_cluster, make_layer, make_model, uniform_model

OPTIONS = octoplan.CompileOptions(4, max_evaluations=400, max_stages_per_device=2)


def uneven_model(num_layers: int = 5) -> ModelGraph:
    random = np.random.default_rng(11)
    return make_model(
        [
            make_layer(
                f"l{index}",
                *random.integers(1, 4, size=3).tolist(),
                state_bytes=float(random.integers(1, 3)),
                activation_bytes=float(random.integers(1, 4)),
                output_bytes=1.0,
            )
            for index in range(num_layers)
        ]
    )


@pytest.fixture(scope="module", params=["none", "1f1b:0.9"])
def case(request: pytest.FixtureRequest) -> tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier]:
    """A frontier in each unit."""
    model, cluster = uneven_model(), make_cluster(2, latency_s=0.1, memory_bytes=1000.0)
    options = replace(OPTIONS, memory_limit=request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "NUM_LIMITS", 4)
        return model, cluster, options, compile_frontier(model, cluster, options)


def test_more_memory_buys_time(
    case: tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier],
) -> None:
    *_, frontier = case
    assert len(frontier.points) >= 3
    for tighter, looser in pairwise(frontier.points):
        assert tighter.memory < looser.memory
        assert tighter.makespan_s > looser.makespan_s
        assert tighter.lower_bound_s >= looser.lower_bound_s
    assert all(point.lower_bound_s <= point.makespan_s * (1 + 1e-9) for point in frontier.points)


def test_every_point_is_a_valid_plan_for_its_own_limit(
    case: tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier],
) -> None:
    model, cluster, _, frontier = case
    for point in frontier.points:
        assert octoplan.check(point.plan, model, cluster) == []
        assert MemoryLimit.parse(point.plan.job.memory_limit) == MemoryLimit.parse(point.memory_limit)
        assert MemoryLimit.parse(point.memory_limit).value >= point.memory * (1 - 1e-12)
        assert point.plan.predicted.makespan_s == point.makespan_s


def test_memory_is_what_the_plan_says(
    case: tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier],
) -> None:
    *_, frontier = case
    for point in frontier.points:
        ranks = point.plan.predicted.ranks
        if frontier.unit == "share":
            assert point.memory == pytest.approx(max(rank.peak_bytes for rank in ranks) / 1000)
        else:
            dynamic = [other.dynamic_peak_bytes / other.memory for other in frontier.points]
            assert point.dynamic_peak_bytes == max(rank.peak_bytes - rank.state_bytes for rank in ranks)
            assert dynamic == pytest.approx([dynamic[0]] * len(dynamic))


def test_the_job_gets_the_fastest_plan_within_its_own_limit(
    case: tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier],
) -> None:
    model, cluster, options, frontier = case
    assert octoplan.check(frontier.plan, model, cluster) == []
    limit = float("inf") if frontier.job_limit is None else frontier.job_limit
    within = [point.makespan_s for point in frontier.points if point.memory <= limit]
    assert frontier.plan.predicted.makespan_s == min(within)
    recorded = MemoryLimit.parse(frontier.plan.job.memory_limit)
    assert recorded == MemoryLimit.parse(options.memory_limit)


def test_no_baseline_beats_the_frontier(
    case: tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier],
) -> None:
    *_, frontier = case
    assert {"1f1b", "gpipe:balanced"} <= {baseline.strategy for baseline in frontier.baselines}
    for baseline in frontier.baselines:
        within = [point.makespan_s for point in frontier.points if point.memory <= baseline.memory]
        assert within
        assert min(within) <= baseline.makespan_s * (1 + 1e-9)


def test_the_1f1b_unit_is_that_of_the_balanced_1f1b_plan(
    case: tuple[ModelGraph, Cluster, octoplan.CompileOptions, Frontier],
) -> None:
    *_, frontier = case
    (own,) = [entry for entry in frontier.baselines if entry.strategy == "1f1b:balanced"]
    assert (own.memory == pytest.approx(1.0)) == (frontier.unit == "1f1b")


def test_bounds_and_makespans_hold_the_true_optimum_of_every_limit() -> None:
    """Three layers on two ranks, everything tried: bound <= optimum <= makespan at each point's limit in bytes."""
    model, cluster = uneven_model(3), make_cluster(2, latency_s=0.5)
    options = replace(OPTIONS, microbatches=3, memory_limit="1000", max_evaluations=16_000)
    frontier = compile_frontier(model, cluster, options)
    reached = 0
    for point in frontier.points:
        optimum = exhaustive.optimum(
            model,
            cluster,
            num_microbatches=3,
            backward="split",
            max_stages_per_device=2,
            memory_limit_bytes=[float(point.memory_limit)] * 2,
        )
        assert optimum is not None
        assert point.memory == point.peak_bytes
        assert point.lower_bound_s <= optimum * (1 + 1e-9)
        assert point.makespan_s >= optimum * (1 - 1e-9)
        reached += point.makespan_s <= optimum * (1 + 1e-9)
    assert reached >= len(frontier.points) - 1


def test_the_same_evaluations_give_the_same_files(tmp_path: Path) -> None:
    model, cluster = uniform_model(4, activation_bytes=2.0, state_bytes=1.0), make_cluster(2, latency_s=0.1)
    options = replace(OPTIONS, max_evaluations=50, max_stages_per_device=1, memory_limit="none", seed=3)
    contents = []
    for name in ("first", "second"):
        folder = tmp_path / name
        written = write_frontier(compile_frontier(model, cluster, options), folder)
        assert sorted(folder.iterdir()) == sorted(written)
        contents.append({path.name: path.read_bytes() for path in written})
    assert contents[0] == contents[1]
    document = json.loads(contents[0]["frontier.json"])
    assert next(iter(document)) == "format"
    rows = list(csv.DictReader(contents[0]["frontier.csv"].decode().splitlines()))
    assert [float(row["makespan_s"]) for row in rows] == [point["makespan_s"] for point in document["points"]]
    for row, point in zip(rows, document["points"], strict=True):
        plan = octoplan.load_plan(tmp_path / "first" / row["plan"])
        assert plan.predicted.makespan_s == point["makespan_s"]
    assert b"<svg" in contents[0]["frontier.svg"]


def test_a_baseline_has_no_frontier() -> None:
    with pytest.raises(InputError, match="strategy"):
        compile_frontier(uniform_model(4), make_cluster(2), replace(OPTIONS, strategy="1f1b"))


def test_a_limit_that_nothing_meets_is_infeasible() -> None:
    model, cluster = uniform_model(4, state_bytes=100.0), make_cluster(2)
    with pytest.raises(octoplan.InfeasibleError, match="150"):
        compile_frontier(model, cluster, replace(OPTIONS, memory_limit=150))


def test_stopped_at_once_it_still_has_a_plan_and_a_point() -> None:
    model, cluster = uneven_model(), make_cluster(2)
    options = replace(OPTIONS, max_evaluations=None, time_limit_s=60.0, should_stop=lambda: True)
    frontier = compile_frontier(model, cluster, options)
    assert octoplan.check(frontier.plan, model, cluster) == []
    assert frontier.points
