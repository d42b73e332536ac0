"""The same plan on torch's own `_PipelineScheduleRuntime`, loaded from its CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from octoplan_schemas import Plan


def torch_schedule(
    plan: Plan,
    modules: Mapping[int, nn.Module],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    csv: Path,
) -> _PipelineScheduleRuntime:
    """Return torch's schedule for this rank.

    Parameters
    ----------
    plan:
        Neighbouring stages talk, and the last stage runs its forwards in order: torch can do no other.
    modules:
        This rank's stages, each a module of one input and one output.
    loss:
        Loss of one microbatch; the gradients are those of the mean.
    csv:
        Where this rank writes the schedule that torch loads.
    """
    csv.write_text("\n".join(",".join(row) for row in csv_rows(plan)) + "\n", encoding="utf-8")
    device = torch.device("cpu")
    stages = [PipelineStage(module, stage, len(plan.stages), device) for stage, module in modules.items()]
    schedule = _PipelineScheduleRuntime(stages, plan.job.microbatches, loss_fn=loss)
    schedule._load_csv(str(csv), format="compute_comms")
    return schedule


def csv_rows(plan: Plan) -> list[list[str]]:
    """Return the programs, with the words by which torch divides gradients by the number of microbatches."""
    rows = []
    for rank, program in enumerate(plan.programs):
        rows.append([*program, *(f"{stage.id}REDUCE_GRAD" for stage in plan.stages_of(rank))])
    return rows


def torch_step(
    schedule: _PipelineScheduleRuntime, plan: Plan, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Run one step on this rank."""
    rank = dist.get_rank()
    inputs = (batch[0],) if plan.stages[0].rank == rank else ()
    if plan.stages[-1].rank == rank:
        schedule.step(*inputs, target=batch[1], losses=[], return_outputs=False)
    else:
        schedule.step(*inputs, return_outputs=False)
