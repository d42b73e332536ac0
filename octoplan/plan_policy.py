"""The policy that ordered a plan, as its provenance records it: a later search of the same plan starts from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan.problem_builder import assignment_of
from octoplan.tuner import Candidate
from octoplan.tuner.pricing_kernel import DELTA_SIZE, RULE_SIZE
from octoplan_schemas import Plan
from octoplan_solvers.ops import FloatArray


def policy_entry(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate's policy as JSON."""
    return {"rule": candidate.rule.tolist(), "delta": candidate.delta.tolist()}


def recorded_candidate(plan: Plan) -> Candidate | None:
    """Return the candidate that a plan records; None if it records none, or none that fits its stages.

    The file may come from anywhere: whatever is not numbers of the right shape is as good as nothing.
    """
    entry = (plan.provenance.model_extra or {}).get("policy")
    if not isinstance(entry, dict):
        return None
    assignment = assignment_of(plan)
    rule = _numbers(entry.get("rule"), (RULE_SIZE,))
    delta = _numbers(entry.get("delta"), (assignment.num_stages, DELTA_SIZE))
    if rule is None or delta is None:
        return None
    cuts = np.array([0, *(end for _, end in assignment.boundaries)], dtype=np.int64)
    return Candidate(cuts, np.array(assignment.ranks, dtype=np.int64), rule, delta, float("inf"))


def _numbers(value: Any, shape: tuple[int, ...]) -> FloatArray | None:
    try:
        numbers = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return numbers if numbers.shape == shape and bool(np.isfinite(numbers).all()) else None
