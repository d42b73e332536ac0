"""`compile_plan`: valid, within memory, bounded, reproducible, and clear about what cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import octoplan
from octoplan_schemas import InputError, ModelGraph
from tests.builders import make_cluster, make_layer, make_model, uniform_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK = octoplan.CompileOptions(8, max_evaluations=150, memory_limit="none")


def heavy_head(num_layers: int = 10) -> ModelGraph:
    body = [
        make_layer(f"l{index}", 1.0, 1.1, 0.9, state_bytes=10, output_bytes=5) for index in range(num_layers)
    ]
    return make_model([*body, make_layer("head", 3.0, 3.3, 0.2, kind="lm_head", activation_bytes=4)])


@pytest.mark.parametrize(
    "strategy", ["octoplan", "1f1b", "1f1b:balanced", "gpipe", "interleaved-1f1b", "zb-v"]
)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_plans_are_valid_and_bounded(strategy: str, num_ranks: int) -> None:
    model, cluster = heavy_head(), make_cluster(num_ranks, latency_s=0.05, bandwidth=100)
    plan = octoplan.compile_plan(model, cluster, replace(QUICK, strategy=strategy))
    assert octoplan.check(plan, model, cluster) == []
    assert plan.predicted.lower_bound_s is not None
    assert plan.predicted.lower_bound_s <= plan.predicted.makespan_s
    assert octoplan.simulate(plan, model, cluster).makespan_s == plan.predicted.makespan_s


def test_predicted_comes_back_from_the_programs_alone() -> None:
    model, cluster = heavy_head(), make_cluster(3, latency_s=0.05, bandwidth=100)
    plan = octoplan.compile_plan(model, cluster, QUICK)
    with_inputs = octoplan.predict_again(plan, octoplan.simulate(plan, model, cluster))
    from_recorded_costs = octoplan.predict_again(plan, octoplan.simulate(plan))
    assert with_inputs == plan.predicted
    assert from_recorded_costs == plan.predicted


@pytest.mark.parametrize("backward", ["split", "fused"])
def test_octoplan_is_never_worse_than_a_baseline(backward: str) -> None:
    model, cluster = heavy_head(), make_cluster(4)
    options = replace(QUICK, max_evaluations=1, backward=backward, max_stages_per_device=2)
    ours = octoplan.compile_plan(model, cluster, options).predicted.makespan_s
    names = ["gpipe", "1f1b:balanced", "interleaved-1f1b:balanced"] + (
        ["zb-h2"] if backward == "split" else []
    )
    for name in names:
        theirs = octoplan.compile_plan(model, cluster, replace(QUICK, strategy=name)).predicted.makespan_s
        assert ours <= theirs


def test_fused_jobs_have_no_weight_ops() -> None:
    plan = octoplan.compile_plan(heavy_head(), make_cluster(2), replace(QUICK, backward="fused"))
    assert plan.job.backward == "fused"
    assert not any("W" in word or "I" in word for program in plan.programs for word in program)


def test_same_seed_and_evaluations_give_the_same_bytes() -> None:
    model, cluster = heavy_head(), make_cluster(3)
    options = replace(QUICK, seed=7, max_evaluations=400)
    first, second = (octoplan.compile_plan(model, cluster, options).to_document() for _ in range(2))
    assert first == second


def test_memory_limit_is_kept_and_costs_time() -> None:
    model = uniform_model(8, activation_bytes=1.0, state_bytes=1.0)
    cluster = make_cluster(4)
    loose = octoplan.compile_plan(
        model, cluster, replace(QUICK, memory_limit="none", max_stages_per_device=1)
    )
    tight = octoplan.compile_plan(model, cluster, replace(QUICK, memory_limit=6, max_stages_per_device=1))
    assert max(rank.peak_bytes for rank in tight.predicted.ranks) <= 6
    assert max(rank.peak_bytes for rank in loose.predicted.ranks) > 6
    assert tight.predicted.makespan_s > loose.predicted.makespan_s


def test_limit_as_a_multiple_of_1f1b() -> None:
    model, cluster = uniform_model(8, activation_bytes=1.0, state_bytes=3.0), make_cluster(4)
    reference = octoplan.compile_plan(model, cluster, replace(QUICK, strategy="1f1b:balanced"))
    allowed = max(rank.peak_bytes - rank.state_bytes for rank in reference.predicted.ranks)
    plan = octoplan.compile_plan(model, cluster, replace(QUICK, memory_limit="1f1b:0.5"))
    assert octoplan.check(plan, model, cluster) == []
    for rank in plan.predicted.ranks:
        assert rank.peak_bytes - rank.state_bytes <= 0.5 * allowed


def test_infeasible_names_rank_and_missing_bytes() -> None:
    model, cluster = uniform_model(4, state_bytes=100.0, activation_bytes=1.0), make_cluster(2)
    with pytest.raises(
        octoplan.InfeasibleError, match=r"rank 0 needs 202 bytes .* 52 more than its limit of 150"
    ):
        octoplan.compile_plan(model, cluster, replace(QUICK, memory_limit=150))


def test_a_baseline_that_does_not_fit_says_by_how_much() -> None:
    model, cluster = uniform_model(4, activation_bytes=1.0), make_cluster(2)
    with pytest.raises(
        octoplan.InfeasibleError, match=r"gpipe .* rank 0 peaks at 16 bytes, 12 more than .* 4"
    ):
        octoplan.compile_plan(model, cluster, replace(QUICK, strategy="gpipe", memory_limit=4))


def test_more_ranks_than_layers_is_refused() -> None:
    with pytest.raises(InputError, match="5 ranks need at least as many layers, but the model has 4"):
        octoplan.compile_plan(uniform_model(4), make_cluster(5), QUICK)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("microbatches", 0),
        ("max_stages_per_device", 0),
        ("max_evaluations", 0),
        ("backward", "both"),
        ("time_limit_s", -1.0),
        ("time_limit_s", float("nan")),
        ("seed", -1),
        ("strategy", "1f2b"),
        ("memory_limit", "lots"),
    ],
)
def test_bad_options_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        octoplan.compile_plan(uniform_model(4), make_cluster(2), replace(QUICK, **{field: value}))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(value) in str(caught.value)


def test_stopping_at_once_still_gives_a_valid_plan() -> None:
    model, cluster = heavy_head(), make_cluster(4)
    options = octoplan.CompileOptions(8, time_limit_s=60, should_stop=lambda: True)
    plan = octoplan.compile_plan(model, cluster, options)
    assert octoplan.check(plan, model, cluster) == []


@pytest.mark.parametrize("cluster_name", ["h800x4", "h800x4-a100x4"])
@pytest.mark.parametrize("source", ["profiles/nemotron-h-4B.json", "configs/llama3-8B.json"])
def test_published_models(source: str, cluster_name: str) -> None:
    """A sample of the examples; every one of them is compiled by benchmarks/examples.py."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / f"{cluster_name}.json")
    model = octoplan.import_model(EXAMPLES / source, octoplan.ImportOptions(cluster=cluster))
    plan = octoplan.compile_plan(model, cluster, replace(QUICK, microbatches=16))
    assert octoplan.check(plan, model, cluster) == []
    balanced = octoplan.compile_plan(
        model, cluster, replace(QUICK, microbatches=16, strategy="1f1b:balanced")
    )
    assert plan.predicted.makespan_s < balanced.predicted.makespan_s
