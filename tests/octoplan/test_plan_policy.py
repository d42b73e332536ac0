"""The policy in a plan's provenance: it comes back as it was, and junk in its place is nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import octoplan
from octoplan.plan_policy import policy_entry, recorded_candidate
from octoplan_schemas import Plan
from tests.builders import make_cluster, uniform_model


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A plan that records its policy."""
    options = octoplan.CompileOptions(4, max_evaluations=40, memory_limit="none", max_stages_per_device=2)
    return octoplan.compile_plan(uniform_model(5), make_cluster(2, latency_s=0.1), options)


def with_policy(plan: Plan, policy: Any) -> Plan:
    document = json.loads(json.dumps(plan.to_document()))
    document["provenance"]["policy"] = policy
    return Plan.from_document(document)


def test_round_trip_through_the_file(plan: Plan) -> None:
    candidate = recorded_candidate(plan)
    assert candidate is not None
    assert candidate.assignment.ranks == tuple(stage.rank for stage in plan.stages)
    assert candidate.assignment.boundaries == tuple(stage.layers for stage in plan.stages)
    again = recorded_candidate(with_policy(plan, policy_entry(candidate)))
    assert again is not None
    assert np.array_equal(again.rule, candidate.rule)
    assert np.array_equal(again.delta, candidate.delta)


@pytest.mark.parametrize(
    "policy",
    [
        None,
        7,
        [],
        {},
        {"rule": "x", "delta": "y"},
        {"rule": [0.0] * 3, "delta": [[0.0] * 4]},
        {"rule": [[]], "delta": None},
        {"rule": {"a": 1}, "delta": [[0.0], [0.0, 1.0]]},
    ],
)
def test_junk_is_nothing(plan: Plan, policy: Any) -> None:
    assert recorded_candidate(with_policy(plan, policy)) is None


def test_a_policy_of_other_stages_is_nothing(plan: Plan) -> None:
    candidate = recorded_candidate(plan)
    assert candidate is not None
    entry = policy_entry(candidate)
    entry["delta"] = [*entry["delta"], [0.0] * candidate.delta.shape[1]]
    assert recorded_candidate(with_policy(plan, entry)) is None
