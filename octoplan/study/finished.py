"""From an ordered plan of a study's own methods to the plan document."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from octoplan.compile_options import CompileOptions
from octoplan.compiler import recorded_limit
from octoplan.ordering import OrderedPlan
from octoplan.plan_writer import PlanInputs, write_plan
from octoplan_schemas import Cluster, ModelGraph, Plan, PlanJob
from octoplan_solvers.bounds import Bound


class WrongAnswerError(Exception):
    """A method handed back something that is not an answer to the question. Its text is one line."""


def finished_plan(
    model: ModelGraph,
    cluster: Cluster,
    options: CompileOptions,
    ordered: OrderedPlan,
    bound: Bound,
    provenance: dict[str, Any],
) -> Plan:
    """Write the plan document with the job as the options give it."""
    job = PlanJob(
        microbatches=options.microbatches,
        backward="split" if ordered.staged.split_backward else "fused",
        max_stages_per_device=options.max_stages_per_device,
        memory_limit=recorded_limit(options.memory_limit),
    )
    entry = {**provenance, "octoplan": version("octoplan")}
    return write_plan(PlanInputs(model, cluster, job), ordered, bound, entry)
