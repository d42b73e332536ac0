"""``megatron``: Megatron-LM's own flags for a partition, one per line; its order needs none.

The file is made for ``sed '/^#/d' FILE | xargs torchrun ... pretrain_gpt.py ...``.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from octoplan.baselines import build_schedule
from octoplan.baselines.interleaved import microbatch_group_size
from octoplan.baselines.schedule import loop_placement
from octoplan.errors import InfeasibleError
from octoplan.exports.request import ExportRequest
from octoplan.targets.megatron import ONE_STAGE, SEVERAL_STAGES, stages_per_rank
from octoplan.targets.megatron_layers import MegatronLayers, megatron_layers

FORMAT = "megatron"
_ADVICE = "compile with --target megatron"


def files(request: ExportRequest) -> dict[Path, str]:
    """Return the one file."""
    layers = megatron_layers(request.layers("megatron is told the kind of every layer"))
    for source, destination in request.skips():
        raise InfeasibleError(
            f"megatron hands tensors to the next stage only, but stage {source} feeds stage {destination}"
        )
    per_rank = _require_loop(request)
    _require_own_order(request, per_rank)
    _require_whole_ends(request, layers)
    return {request.path: "".join(f"{line}\n" for line in _lines(request, layers, per_rank))}


def _require_loop(request: ExportRequest) -> int:
    """Return the number of stages per rank."""
    num_ranks, num_stages = request.plan.num_ranks, len(request.plan.stages)
    if request.stage_ranks != loop_placement(num_ranks, num_stages // num_ranks):
        raise InfeasibleError(
            f"megatron puts stage s on rank s mod {num_ranks}, and equally many on every rank; {_ADVICE}"
        )
    return num_stages // num_ranks


def _require_own_order(request: ExportRequest, per_rank: int) -> None:
    num_ranks, num_microbatches = request.plan.num_ranks, request.plan.job.microbatches
    if per_rank not in stages_per_rank(num_ranks, num_microbatches, per_rank):
        raise InfeasibleError(
            f"megatron takes {per_rank} stages per rank only with several ranks and a microbatch for each, not with "
            f"{num_ranks} ranks and {num_microbatches} microbatches; {_ADVICE}"
        )
    name = ONE_STAGE if per_rank == 1 else SEVERAL_STAGES
    own = build_schedule(name, num_ranks, num_microbatches, per_rank).orders
    for rank, (planned, expected) in enumerate(zip(request.index.compute_order, own, strict=True)):
        for position, (op, wanted) in enumerate(zip(planned, expected, strict=False)):
            if op != wanted:
                raise InfeasibleError(
                    f"megatron runs its own {name} order: op {position} of rank {rank} is {_word(wanted)} there, "
                    f"but {_word(op)} in the plan; {_ADVICE}"
                )


def _word(op: tuple[int, str, int]) -> str:
    return "".join(map(str, op))


def _require_whole_ends(request: ExportRequest, layers: MegatronLayers) -> None:
    cuts = {stage.layers[0] for stage in request.plan.stages}
    for what, (first, end) in (("embedding", layers.embedding), ("head", layers.head)):
        if cuts.intersection(range(first + 1, end)):
            raise InfeasibleError(f"megatron builds the {what} in one stage, but the plan cuts it; {_ADVICE}")


def _lines(request: ExportRequest, layers: MegatronLayers, per_rank: int) -> list[str]:
    num_ranks, num_microbatches = request.plan.num_ranks, request.plan.job.microbatches
    stages = [layers.letters[slice(*stage.layers)] for stage in request.plan.stages]
    lines = [
        f"# {request.title()}",
        f"# {'1F1B' if per_rank == 1 else f'interleaved 1F1B, {per_rank} stages per rank'}; the global batch size is",
        f"# {num_microbatches} x the micro-batch size x the data-parallel size.",
        f"--pipeline-model-parallel-size {num_ranks}",
    ]
    if layers.is_hybrid:
        lines += [
            "# For pretrain_hybrid.py; an empty segment holds the embedding or the head alone.",
            f"--hybrid-layer-pattern '{hybrid_pattern(stages)}'",
        ]
    else:
        lines.append(f"--pipeline-model-parallel-layout '{layout(stages)}'")
    group = microbatch_group_size(num_ranks, num_microbatches)
    if per_rank > 1 and group != num_ranks:
        lines.append(f"--microbatch-group-size-per-virtual-pipeline-stage {group}")
    return lines


def layout(stages: list[tuple[str, ...]]) -> str:
    """Write stages as a layout: ``Et*3|t*4|t*3L``."""
    return "|".join(
        "".join(
            _run(letter, len(list(run))) for letter, run in groupby(letters for letters in stage if letters)
        )
        for stage in stages
    )


def _run(letter: str, count: int) -> str:
    return letter if count == 1 else f"{letter}*{count}"


def hybrid_pattern(stages: list[tuple[str, ...]]) -> str:
    """Write stages as a hybrid pattern: ``M-M*|-M-``, in which ``*`` is attention."""
    return "|".join("".join(stage) for stage in stages)
