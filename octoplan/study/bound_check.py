"""Bounds against plans of other methods: a bound that any checked plan beats is wrong, whoever claims it.

A bound holds for its job: the instance, split or fused backwards, and a number of stages per device. A job with split
backwards admits whole ones, too, and one with more stages per device admits fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Relative excess of a bound over a makespan that is rounding.
TOLERANCE = 1e-9


def cross_check(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with ``instance_bound_s`` and ``instance_gap``, and bounds that do not hold as ``wrong``.

    ``instance_bound_s`` is the largest bound that any cell proves of a job that admits the record's plan.
    """
    by_instance: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_instance.setdefault(record["instance_sha256"], []).append(record)
    checked = {id(record): _checked(record, by_instance[record["instance_sha256"]]) for record in records}
    sound: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if checked[id(record)]["status"] == "ok":
            sound.setdefault(record["instance_sha256"], []).append(record)
    return [
        {**checked[id(record)], **_instance_bound(record, sound.get(record["instance_sha256"], ()))}
        for record in records
    ]


def _checked(record: dict[str, Any], others: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the record, as ``wrong`` if a plan that its job admits is shorter than its bound."""
    bound = record["lower_bound_s"]
    if record["status"] != "ok" or bound is None:
        return record
    for other in others:
        if other["status"] == "ok" and _admits(record, other):
            makespan = other["makespan_s"]
            if bound > makespan * (1 + TOLERANCE):
                message = (
                    f"its bound of {bound:.9g} s is above the {makespan:.9g} s of {other['method']}'s plan"
                )
                return {**record, "status": "wrong", "message": message}
    return record


def _instance_bound(record: dict[str, Any], sound: Iterable[dict[str, Any]]) -> dict[str, Any]:
    makespan = record["makespan_s"]
    bounds = [
        other["lower_bound_s"]
        for other in sound
        if makespan is not None and other["lower_bound_s"] and _admits(other, record)
    ]
    if not bounds:
        return {"instance_bound_s": None, "instance_gap": None}
    return {"instance_bound_s": max(bounds), "instance_gap": makespan / max(bounds) - 1}


def _admits(job: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Decide whether the job of one record admits the plan of another, of the same instance."""
    return (
        job["backward"] in ("split", plan["backward"])
        and job["max_stages_per_device"] >= plan["max_stages_per_device"]
        and _limits_agree(job, plan)
    )


def _limits_agree(job: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Constraints, targets and limits of a method's own make its bound one of another job."""
    return bool(job["job_options"] == plan["job_options"])
