"""``torchtitan``: a schedule of compute words, and beside it the settings that go with it.

Torchtitan adds the communication itself. The settings are the fields of its ``parallelism`` section, as TOML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from octoplan.baselines.partition import LAST_STAGE_KINDS
from octoplan.baselines.schedule import v_placement
from octoplan.errors import InfeasibleError
from octoplan.exports.request import ExportRequest, plain_line
from octoplan.exports.torch_csv import csv_text
from octoplan.exports.torch_words import require_torch
from octoplan.targets.restrictions import block_of
from octoplan.targets.torchtitan import placements
from octoplan_schemas import Layer

FORMAT = "torchtitan"
#: Names of schedules by which torchtitan decides where stages go; the order is the file's.
_LOOP, _V_SHAPED = "PipelineScheduleMulti", "ZBVZeroBubble"

_SETTINGS = """\
# {title}
# Fields of torchtitan's parallelism settings. Where configs are TOML files, two of them have other names:
# module_fqns_per_model_part, and instead of num_pp_microbatches a local batch size of that many microbatches.
[parallelism]
pipeline_parallel_degree = {degree}
pipeline_parallel_schedule = "{schedule}"
pipeline_parallel_schedule_csv = {csv}
num_pp_microbatches = {microbatches}
pipeline_parallel_module_fqns_per_model_part = [
{parts}]
"""


def files(request: ExportRequest) -> dict[Path, str]:
    """Return the schedule, and the settings beside it."""
    require_torch(request)
    schedule = _schedule(request)
    parts = module_names(request)
    settings = _SETTINGS.format(
        title=request.title(),
        degree=request.plan.num_ranks,
        schedule=schedule,
        csv=json.dumps(plain_line(request.path.as_posix())),
        microbatches=request.plan.job.microbatches,
        parts="".join(f"  {json.dumps(part)},\n" for part in parts),
    )
    rows = [
        [f"{stage}{kind}{microbatch}" for stage, kind, microbatch in ops]
        for ops in request.index.compute_order
    ]
    return {request.path: csv_text(rows), settings_path(request.path): settings}


def settings_path(path: Path) -> Path:
    """Return where the settings go."""
    return path.with_name(f"{path.name}.toml" if path.suffix == ".toml" else f"{path.stem}.toml")


def _schedule(request: ExportRequest) -> str:
    """Return the name of a schedule with the plan's placement."""
    ranks, num_ranks = request.stage_ranks, request.plan.num_ranks
    if ranks not in placements(num_ranks, len(ranks) // num_ranks):
        raise InfeasibleError(
            "torchtitan deals stages out in a loop, or in a V with two stages per rank, equally many to every rank, "
            f"but the plan's stages are on ranks {', '.join(map(str, ranks[:12]))}{', ...' if ranks[12:] else ''}; "
            "compile with --target torchtitan"
        )
    return _V_SHAPED if num_ranks > 1 and ranks == v_placement(num_ranks) else _LOOP


def module_names(request: ExportRequest) -> list[list[str]]:
    """Return the modules of every stage, by the names that torchtitan gives them.

    Raises
    ------
    InfeasibleError
        If a stage ends inside a block.
    """
    layers = request.layers("torchtitan is told the modules of every stage by name")
    parts = []
    for stage in request.plan.stages:
        first, end = stage.layers
        if first > 0 and block_of(layers[first].name) == block_of(layers[first - 1].name):
            raise InfeasibleError(
                f"torchtitan cuts a model between blocks, but stage {stage.id} begins with {layers[first].name!r}; "
                "compile with --target torchtitan"
            )
        names = (name for layer in layers[first:end] for name in _names(layer, layers))
        parts.append(list(dict.fromkeys(names)))
    return parts


def _names(layer: Layer, layers: Sequence[Layer]) -> list[str]:
    """An imported model's embedding and head have other names there; the final norm belongs to the head."""
    if layer.name == "embedding":
        return ["tok_embeddings"]
    if layer.name == "lm_head" and layer.kind in LAST_STAGE_KINDS:
        return ["lm_head"] if any(other.name == "norm" for other in layers) else ["norm", "lm_head"]
    return [block_of(layer.name)]
