"""`explain_plan`: gains against closed forms and against simulations of changed files; the same data every time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import octoplan
import octoplan_schemas
from octoplan import ExplainOptions, Explanation, explain_plan
from octoplan.certificate import strongest_formula
from octoplan.compiler import limited_problem
from octoplan.explain.changes import Job, changes_worth_trying
from octoplan.explain.diagnosis import diagnose
from octoplan.explain.explanation import WhatIf
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan
from tests.builders import make_cluster, make_layer, make_model, uniform_model

QUICK = octoplan.CompileOptions(6, max_evaluations=60, memory_limit="none", max_stages_per_device=2)
FEW = ExplainOptions(max_evaluations=200)


def heavy_head(num_others: int = 5, weight: float = 4.0) -> ModelGraph:
    """Return layers that take three seconds, and a head that weighs as much as several of them."""
    body = [make_layer(f"l{index}", 1.0, 1.1, 0.9, output_bytes=4) for index in range(num_others)]
    return make_model([*body, make_layer("head", weight, 1.1 * weight, 0.9 * weight, kind="lm_head")])


def what_if(explanation: Explanation, name: str) -> WhatIf:
    (found,) = [entry for entry in explanation.what_ifs if entry.name == name]
    return found


def without_hashes(plan: Plan) -> Plan:
    """Return a plan that any model and cluster may be simulated with."""
    document = plan.to_document()
    document["model"]["sha256"] = document["cluster"]["sha256"] = ""
    return Plan.from_document(document)


def faster_links(cluster: Cluster) -> Cluster:
    document = cluster.to_document()
    for link in ("intra_node", "inter_node"):
        document["links"][link]["bandwidth"] *= 2
        document["links"][link]["latency_s"] /= 2
    return Cluster.from_document(document)


@pytest.fixture(scope="module")
def case() -> tuple[ModelGraph, Cluster, Plan, Explanation]:
    """A model whose head weighs four layers, on ranks with slow links."""
    model, cluster = heavy_head(), make_cluster(3, latency_s=0.2, bandwidth=8.0, op_overhead_s=0.05)
    plan = octoplan.compile_plan(model, cluster, QUICK)
    return model, cluster, plan, explain_plan(plan, model, cluster, FEW)


def test_a_change_that_only_removes_limits_never_looks_worse(
    case: tuple[ModelGraph, Cluster, Plan, Explanation],
) -> None:
    *_, plan, explanation = case
    assert explanation.control.makespan_s is not None
    assert explanation.control.makespan_s <= plan.predicted.makespan_s
    assert explanation.reference_s == explanation.control.makespan_s
    for name in ("links", "split-layer", "more-stages", "no-overhead", "more-microbatches"):
        found = what_if(explanation, name)
        assert found.makespan_s is not None
        assert found.gain is not None
        assert found.gain >= -1e-12
        assert found.gain == pytest.approx(1 - found.makespan_s / explanation.reference_s)
        assert found.lower_bound_s is not None
        assert found.lower_bound_s <= found.makespan_s * (1 + 1e-9)
    gains = [entry.gain for entry in explanation.what_ifs]
    assert gains == sorted(gains, key=lambda gain: -(gain or 0.0))


def test_faster_links_are_worth_at_least_what_the_plan_itself_gains_by_them(
    case: tuple[ModelGraph, Cluster, Plan, Explanation],
) -> None:
    model, cluster, plan, explanation = case
    simulated = octoplan.simulate(without_hashes(plan), model, faster_links(cluster)).makespan_s
    assert simulated < plan.predicted.makespan_s
    found = what_if(explanation, "links").makespan_s
    assert found is not None
    assert found <= simulated * (1 + 1e-12)


def test_a_head_in_two_halves_breaks_the_bound_that_the_whole_one_sets(
    case: tuple[ModelGraph, Cluster, Plan, Explanation],
) -> None:
    *_, explanation = case
    heaviest = explanation.diagnosis.heaviest_layer
    assert heaviest.name == "head"
    assert heaviest.all_s == pytest.approx(6 * 12.0)
    assert explanation.diagnosis.bounds[0].seconds >= 6 * 12.0
    found = what_if(explanation, "split-layer").makespan_s
    assert found is not None
    assert found < 6 * 12.0


def test_the_diagnosis_adds_up(case: tuple[ModelGraph, Cluster, Plan, Explanation]) -> None:
    _, _, plan, explanation = case
    diagnosis = explanation.diagnosis
    makespan = plan.predicted.makespan_s
    assert diagnosis.makespan_s == makespan
    path = diagnosis.critical_path
    assert sum(path.compute_s) + path.transfer_s == pytest.approx(makespan)
    assert all(
        own <= rank.busy_s + 1e-9 for own, rank in zip(path.compute_s, plan.predicted.ranks, strict=True)
    )
    document = explanation.to_document()
    idle = [rank["idle_s"] for rank in document["bubbles"]["ranks"]]
    assert idle == pytest.approx([rank.idle_s for rank in plan.predicted.ranks])
    transfers = sum(rank["transfer"] for rank in document["bubbles"]["ranks"])
    assert sum(link.waiting_s for link in diagnosis.links) == pytest.approx(transfers)
    seconds = [bound.seconds for bound in diagnosis.bounds]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] <= makespan
    assert plan.predicted.lower_bound_s is not None
    assert seconds[0] >= plan.predicted.lower_bound_s


def test_links_are_busy_for_bytes_by_bandwidth() -> None:
    model = uniform_model(2, output_bytes=3.0)
    cluster = make_cluster(2, bandwidth=10.0, latency_s=0.1)
    plan = octoplan.compile_plan(model, cluster, replace(QUICK, strategy="1f1b"))
    links = explain_plan(plan, model, cluster, ExplainOptions(max_evaluations=10)).diagnosis.links
    assert {(link.source, link.destination) for link in links} == {(0, 1), (1, 0)}
    for link in links:
        assert link.busy_s == pytest.approx(6 * 0.3)


def test_one_rank_without_overhead_is_work_alone() -> None:
    """One layer on one rank has no bubbles: overhead is all there is to gain, and more microbatches gain nothing."""
    model, cluster = uniform_model(1), make_cluster(1, op_overhead_s=0.5)
    plan = octoplan.compile_plan(model, cluster, replace(QUICK, backward="fused"))
    explanation = explain_plan(plan, model, cluster, ExplainOptions(max_evaluations=20))
    assert explanation.reference_s == pytest.approx(6 * (3 + 2 * 0.5))
    free = what_if(explanation, "no-overhead")
    assert free.makespan_s == pytest.approx(6 * 3)
    assert free.gain == pytest.approx(1 - 3 / 4)
    assert what_if(explanation, "more-microbatches").gain == pytest.approx(0.0, abs=1e-12)
    assert {entry.name for entry in explanation.what_ifs} == {
        "no-overhead",
        "more-microbatches",
        "split-layer",
        "split-backward",
    }


def test_twice_the_microbatches_share_one_filling() -> None:
    """Fused 1F1B of R equal stages takes (M + R - 1) microbatches' work; twice the M share the R - 1."""
    model, cluster = uniform_model(3), make_cluster(3)
    options = octoplan.CompileOptions(4, strategy="1f1b", memory_limit="none")
    plan = octoplan.compile_plan(model, cluster, options)
    assert plan.predicted.makespan_s == pytest.approx((4 + 2) * 3)
    explanation = explain_plan(plan, model, cluster, ExplainOptions(max_evaluations=300))
    found = what_if(explanation, "more-microbatches")
    assert found.makespan_s == pytest.approx((8 + 2) * 3 / 2)
    split = what_if(explanation, "split-backward").makespan_s
    assert split is not None
    assert split < explanation.reference_s


def test_memory_that_ranks_idle_for_is_worth_something() -> None:
    model, cluster = uniform_model(4, activation_bytes=1.0), make_cluster(2)
    plan = octoplan.compile_plan(model, cluster, replace(QUICK, memory_limit=3.0))
    explanation = explain_plan(plan, model, cluster, FEW)
    waiting = sum(rank.waiting_s for rank in explanation.diagnosis.memory)
    assert waiting > 0
    assert [rank.limit_bytes for rank in explanation.diagnosis.memory] == [3.0, 3.0]
    free = what_if(explanation, "memory-unlimited")
    assert free.gain is not None
    assert free.gain > 0.01
    more = what_if(explanation, "memory-all")
    assert more.gain == pytest.approx(free.gain, abs=0.05)


def test_a_limit_by_1f1b_gets_more_room_on_every_rank() -> None:
    model, cluster = uniform_model(4, activation_bytes=1.0), make_cluster(2)
    options = replace(QUICK, memory_limit="1f1b:0.5")
    plan = octoplan.compile_plan(model, cluster, options)
    problem = limited_problem(model, cluster, options)
    diagnosis = diagnose(problem, octoplan.simulate(plan, model, cluster), strongest_formula(problem))
    changes = {
        change.name: change
        for change in changes_worth_trying(Job(model, cluster, options, problem), diagnosis)
    }
    assert changes["memory-all"].problem.dynamic_limit_bytes == problem.dynamic_limit_bytes + 2**30
    assert not np.isfinite(changes["memory-unlimited"].problem.dynamic_limit_bytes)


def test_without_a_limit_memory_is_no_question(case: tuple[ModelGraph, Cluster, Plan, Explanation]) -> None:
    *_, explanation = case
    assert not any(entry.name.startswith("memory") for entry in explanation.what_ifs)
    assert all(rank.limit_bytes is None for rank in explanation.diagnosis.memory)


def test_the_same_evaluations_give_the_same_answer() -> None:
    model, cluster = uniform_model(3, output_bytes=1.0), make_cluster(2, latency_s=0.2)
    plan = octoplan.compile_plan(model, cluster, QUICK)
    options = ExplainOptions(max_evaluations=60, seed=5)
    first, second = (explain_plan(plan, model, cluster, options).to_document() for _ in range(2))
    assert first == second
    assert first["what_ifs"]


def test_constraints_hold_for_the_changes_too() -> None:
    """Halves of a head that is pinned stay where it was: splitting it gains nothing, and would elsewhere."""
    model, cluster = heavy_head(3, 5.0), make_cluster(2)
    job = octoplan_schemas.Job.from_document(
        {
            "format": "octoplan.job/1",
            "constraints": [
                {"pin": {"layers": ["head"], "rank": 0}},
                {"pin": {"layers": ["l0", "l1", "l2"], "rank": 1}},
            ],
        }
    )
    options = replace(QUICK, constraints=job.constraints)
    plan = octoplan.compile_plan(model, cluster, options)
    assert {stage.rank for stage in plan.stages if stage.layers[1] == 4} == {0}
    explanation = explain_plan(plan, model, cluster, replace(FEW, constraints=job.constraints))
    found = what_if(explanation, "split-layer").makespan_s
    assert found is not None
    assert found >= 6 * 15.0
    free = what_if(explain_plan(plan, model, cluster, FEW), "split-layer").makespan_s
    assert free is not None
    assert free < 6 * 15.0


def test_stopped_at_once_it_still_diagnoses() -> None:
    model, cluster = heavy_head(), make_cluster(3)
    plan = octoplan.compile_plan(model, cluster, QUICK)
    explanation = explain_plan(plan, model, cluster, ExplainOptions(should_stop=lambda: True))
    assert explanation.what_ifs == ()
    assert explanation.diagnosis.makespan_s == plan.predicted.makespan_s


def test_another_model_is_refused(case: tuple[ModelGraph, Cluster, Plan, Explanation]) -> None:
    _, cluster, plan, _ = case
    with pytest.raises(InputError, match=r"model\.sha256"):
        explain_plan(plan, uniform_model(6), cluster, FEW)
