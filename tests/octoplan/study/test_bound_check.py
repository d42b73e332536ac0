"""Bounds are checked against the plans of all methods, and shared where jobs admit it."""

from __future__ import annotations

from typing import Any

import pytest

from octoplan.study.bound_check import cross_check


def row(makespan: float | None, bound: float | None, **fields: Any) -> dict[str, Any]:
    return {
        "instance_sha256": "i",
        "method": "m",
        "status": "ok" if makespan else "infeasible",
        "message": "",
        "makespan_s": makespan,
        "lower_bound_s": bound,
        "backward": "split" if makespan else None,
        "max_stages_per_device": 2 if makespan else None,
        "job_options": "{}",
        **fields,
    }


def test_the_best_bound_is_shared() -> None:
    rows = cross_check([row(12.0, 8.0), row(11.0, 10.0), row(None, None)])
    assert [entry["instance_bound_s"] for entry in rows] == [10.0, 10.0, None]
    assert rows[0]["instance_gap"] == pytest.approx(0.2)
    assert [entry["status"] for entry in rows] == ["ok", "ok", "infeasible"]


def test_a_bound_above_another_plan_is_wrong_and_not_shared() -> None:
    rows = cross_check([row(12.0, 11.5, method="liar"), row(11.0, 10.0, method="honest")])
    assert [entry["status"] for entry in rows] == ["wrong", "ok"]
    assert "honest" in rows[0]["message"]
    assert rows[1]["instance_bound_s"] == 10.0
    equal = cross_check([row(12.0, 11.0), row(11.0 * (1 - 1e-12), 10.0)])
    assert [entry["status"] for entry in equal] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("job", "plan", "admits"),
    [
        ({"backward": "split"}, {"backward": "fused"}, True),
        ({"backward": "fused"}, {"backward": "split"}, False),
        ({"max_stages_per_device": 4}, {"max_stages_per_device": 1}, True),
        ({"max_stages_per_device": 1}, {"max_stages_per_device": 4}, False),
        ({"job_options": '{"target":"torch"}'}, {}, False),
        ({"instance_sha256": "j"}, {}, False),
    ],
)
def test_a_bound_holds_for_the_plans_that_its_job_admits(
    job: dict[str, Any], plan: dict[str, Any], admits: bool
) -> None:
    claim = row(12.0, 11.5, **job)
    rows = cross_check([claim, row(11.0, 5.0, **plan)])
    assert rows[0]["status"] == ("wrong" if admits else "ok")
    modest = cross_check([{**claim, "lower_bound_s": 6.0}, row(11.0, 5.0, **plan)])
    assert modest[1]["instance_bound_s"] == (6.0 if admits else 5.0)
