"""``--target``: plans keep the engine's rules, are no worse than the baselines it runs, and are reproducible."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest

import octoplan
from octoplan.baselines import build_schedule
from octoplan.baselines.schedule import loop_placement
from octoplan.compiler import limited_problem
from octoplan.ordering import run_order
from octoplan_schemas import Cluster, Job, ModelGraph, Plan, save
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment
from octoplan_solvers.staged import build_staged
from tests.builders import make_cluster, make_layer, make_model
from tests.octoplan.exports.samples import TARGETS, block_model, compiled, pair


def computes(plan: Plan, rank: int) -> list[str]:
    return [word for word in plan.programs[rank] if "_" not in word]


def assert_torch_runs(plan: Plan) -> None:
    last = len(plan.stages) - 1
    program = plan.programs[plan.stages[-1].rank]
    forwards = [word for word in program if word.startswith(f"{last}F")]
    assert forwards == [f"{last}F{m}" for m in range(plan.job.microbatches)]
    assert not any("@" in word or word.startswith("0I") for program in plan.programs for word in program)


def assert_torchtitan_builds(plan: Plan) -> None:
    assert_torch_runs(plan)
    num_ranks = plan.num_ranks
    ranks = [stage.rank for stage in plan.stages]
    assert len(ranks) % num_ranks == 0
    is_loop = ranks == [stage % num_ranks for stage in range(len(ranks))]
    is_v_shaped = ranks == [*range(num_ranks), *reversed(range(num_ranks))]
    assert is_loop or is_v_shaped


def assert_megatron_builds(plan: Plan) -> None:
    ranks = [stage.rank for stage in plan.stages]
    assert len(ranks) % plan.num_ranks == 0
    assert ranks == [stage % plan.num_ranks for stage in range(len(ranks))]
    assert plan.job.backward == "fused"
    count, last = len(ranks) // plan.num_ranks, plan.num_ranks - 1
    microbatches, group = plan.job.microbatches, plan.num_ranks
    # The last rank does one forward and one backward in turn as soon as the first microbatch has come round.
    steps = [(chunk, first + m) for first in range(0, microbatches, group) for chunk in range(count)
             for m in range(min(group, microbatches - first))]  # fmt: skip
    warmup = (count - 1) * group if count > 1 else 0
    forwards = [f"{last + chunk * group}F{m}" for chunk, m in steps]
    backwards = [f"{last + (count - 1 - chunk) * group}B{m}" for chunk, m in steps]
    expected = forwards[:warmup]
    for position, forward in enumerate(forwards[warmup:]):
        expected += [forward, backwards[position]]
    expected += backwards[len(forwards) - warmup :]
    assert computes(plan, last) == expected


RULES = {
    "torch": assert_torch_runs,
    "torchtitan": assert_torchtitan_builds,
    "megatron": assert_megatron_builds,
}
BASELINES = {
    "torch": ("gpipe", "1f1b:balanced", "zb-h1:balanced", "zb-v:balanced", "interleaved-1f1b:balanced"),
    "torchtitan": ("1f1b", "zb-v:balanced", "interleaved-1f1b:v=2", "zb-h1"),
    "megatron": ("1f1b", "1f1b:balanced", "interleaved-1f1b", "interleaved-1f1b:balanced:v=3"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_plans_keep_the_rules_and_beat_the_baselines(target: str) -> None:
    model, cluster = block_model(12), pair(3)
    plan = compiled(model, cluster, 6, target=target)
    assert octoplan.check(plan, model, cluster) == []
    RULES[target](plan)
    assert plan.predicted.lower_bound_s is not None
    assert plan.predicted.lower_bound_s <= plan.predicted.makespan_s * (1 + 1e-9)
    for strategy in BASELINES[target]:
        baseline = compiled(model, cluster, 6, target=target, strategy=strategy)
        RULES[target](baseline)
        assert octoplan.check(baseline, model, cluster) == []
        assert plan.predicted.makespan_s <= baseline.predicted.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("target", TARGETS)
def test_a_tight_memory_limit_is_kept(target: str) -> None:
    model, cluster = block_model(8, seed=2), pair(2)
    loose = compiled(model, cluster, 6, target=target)
    limit = 0.9 * max(rank.peak_bytes for rank in loose.predicted.ranks)
    plan = compiled(model, cluster, 6, target=target, memory_limit=limit)
    assert octoplan.check(plan, model, cluster) == []
    RULES[target](plan)
    assert max(rank.peak_bytes for rank in plan.predicted.ranks) <= limit


@pytest.mark.parametrize(
    ("target", "words"), [("megatron", "no partition was found that fits"), ("torchtitan", "no plan")]
)
def test_what_cannot_fit_is_refused(target: str, words: str) -> None:
    with pytest.raises(octoplan.InfeasibleError, match=words):
        compiled(block_model(6), pair(2), 4, target=target, memory_limit=1.0)


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_seed_and_evaluations_give_the_same_plan(target: str) -> None:
    model, cluster = block_model(10, seed=3), pair(2)
    one, other = (compiled(model, cluster, 5, target=target, max_evaluations=80, seed=7) for _ in range(2))
    assert one.to_document() == other.to_document()


@pytest.mark.parametrize("target", TARGETS)
def test_seconds_limit_the_search_as_well(target: str) -> None:
    model, cluster = block_model(10, seed=4), pair(2)
    plan = compiled(model, cluster, 6, target=target, max_evaluations=None, time_limit_s=0.5)
    assert octoplan.check(plan, model, cluster) == []
    RULES[target](plan)


def every_partition(num_layers: int, num_stages: int) -> list[list[int]]:
    ends = combinations(range(1, num_layers), num_stages - 1)
    return [[0, *cuts, num_layers] for cuts in ends]


def test_megatron_finds_the_best_of_all_partitions() -> None:
    model, cluster, microbatches = block_model(7, seed=5), pair(2), 4
    problem = limited_problem(
        model, cluster, octoplan.CompileOptions(microbatches, memory_limit="none", target="megatron")
    )
    best = float("inf")
    for count in (1, 2, 3, 4):
        name = "1f1b" if count == 1 else "interleaved-1f1b"
        order = Order.from_lists(build_schedule(name, 2, microbatches, count).orders, microbatches)
        for cuts in every_partition(9, 2 * count):
            sizes = [end - first for first, end in pairwise(cuts)]
            staged = build_staged(problem, Assignment.from_sizes(sizes, loop_placement(2, count)))
            best = min(best, run_order(staged, order).makespan_s)
    plan = compiled(model, cluster, microbatches, target="megatron", max_evaluations=600)
    assert plan.predicted.makespan_s == pytest.approx(best, rel=1e-12)


def test_constraints_of_the_job_hold_together_with_the_targets() -> None:
    model, cluster = block_model(10, seed=6), pair(2)
    constraints = Job.from_document(
        {
            "format": "octoplan.job/1",
            "constraints": [
                {"pin": {"layers": ["layers.0"], "rank": 1}},
                {"boundary_after": "layers.5"},
                {"same_stage": ["layers.7", "layers.8"]},
            ],
        }
    ).constraints
    for target in TARGETS:
        plan = compiled(model, cluster, 4, target=target, constraints=constraints)
        RULES[target](plan)
        stage_of = {
            layer: stage for stage in plan.stages for layer in range(stage.layers[0], stage.layers[1])
        }
        assert stage_of[1].rank == 1
        assert stage_of[6].id != stage_of[7].id
        assert stage_of[8].id == stage_of[9].id


def skip_model() -> ModelGraph:
    names = ["embedding", *(f"layers.{index}" for index in range(4)), "lm_head"]
    kinds = ["embedding", *["transformer"] * 4, "lm_head"]
    layers = [make_layer(name, kind=kind) for name, kind in zip(names, kinds, strict=True)]
    return make_model(layers, [("layers.0", "layers.2", 1.0)])


@pytest.mark.parametrize("target", TARGETS)
def test_both_ends_of_a_skip_are_in_one_stage(target: str) -> None:
    plan = compiled(skip_model(), make_cluster(2), 4, target=target)
    RULES[target](plan)
    assert any(stage.layers[0] <= 1 and stage.layers[1] >= 4 for stage in plan.stages)
    with pytest.raises(octoplan.InfeasibleError, match=r"skip from 'layers\.0' to 'layers\.2' keeps 3 of 6"):
        compiled(skip_model(), make_cluster(5), 4, target=target)


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("megatron", {"strategy": "zb-h1"}, "megatron does not run zb-h1"),
        ("megatron", {"strategy": "interleaved-1f1b", "microbatches": 1}, "does not run interleaved-1f1b"),
        ("megatron", {"constraints": "max_in_flight"}, "does not look at max_in_flight"),
    ],
)
def test_what_an_engine_does_not_run_is_refused(target: str, options: dict[str, object], words: str) -> None:
    if "constraints" in options:
        entry = {"max_in_flight": {"rank": 0, "microbatches": 2}}
        job = Job.from_document({"format": "octoplan.job/1", "constraints": [entry]})
        options = {**options, "constraints": job.constraints}
    with pytest.raises(octoplan.InfeasibleError, match=words):
        compiled(block_model(6), pair(2), **{"microbatches": 4, **options}, target=target)  # type: ignore[arg-type]


def test_a_job_file_may_name_the_target_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    model: ModelGraph = block_model(4)
    cluster: Cluster = pair(2)
    job = Job.from_document({"format": "octoplan.job/1", "microbatches": 4, "target": "torchtitan"})
    options = octoplan.compile_options(job, max_evaluations=20, solver="dp", memory_limit="none")
    plan = octoplan.compile_plan(model, cluster, options)
    assert plan.provenance.model_dump()["target"] == "torchtitan"
    save(tmp_path / "plan.json", plan)
    assert octoplan.load_plan(tmp_path / "plan.json") == plan
    with pytest.raises(octoplan.InputError, match="'nemo' is not a target; there are: octoplan, torch"):
        compiled(model, cluster, target="nemo")
    assert "target" not in compiled(model, cluster, 4).provenance.model_dump()
