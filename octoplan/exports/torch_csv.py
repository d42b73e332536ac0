"""``torch-csv``: the schedule with its communication, as torch's `_PipelineScheduleRuntime` loads it.

One line per rank, words separated by commas, format ``compute_comms``. Torch's words are ours; added are those by
which it gathers sharded parameters (without meaning unless a stage is wrapped by FSDP), and ``REDUCE_GRAD``, without
which gradients stay the sum over microbatches where they should be the mean.
"""

from __future__ import annotations

from pathlib import Path

from octoplan.exports.request import ExportRequest
from octoplan.exports.torch_words import require_torch
from octoplan_schemas import Plan
from octoplan_schemas.op_words import BACKWARD, BACKWARD_WEIGHT, parse_word

FORMAT = "torch-csv"


def files(request: ExportRequest) -> dict[Path, str]:
    """Return the one file."""
    require_torch(request)
    return {request.path: csv_text(csv_rows(request.plan))}


def csv_text(rows: list[list[str]]) -> str:
    """Write rows of words; none of them needs quotes."""
    return "".join(",".join(row) + "\n" for row in rows)


def csv_rows(plan: Plan) -> list[list[str]]:
    """Return the programs in torch's words.

    Parameters are gathered before the first op and let go of after the last; the gradients of a stage are reduced as
    soon as its last backward is done.
    """
    return [_row(plan, rank, program) for rank, program in enumerate(plan.programs)]


def _row(plan: Plan, rank: int, program: tuple[str, ...]) -> list[str]:
    stages = [stage.id for stage in plan.stages_of(rank)]
    backwards_left = dict.fromkeys(stages, plan.job.microbatches)
    row = [f"{stage}UNSHARD" for stage in stages]
    for text in program:
        row.append(text)
        word = parse_word(text)
        if word.kind in (BACKWARD, BACKWARD_WEIGHT):
            backwards_left[word.stage] -= 1
            if backwards_left[word.stage] == 0:
                row.append(f"{word.stage}REDUCE_GRAD")
    return [*row, *(f"{stage}RESHARD" for stage in stages)]
