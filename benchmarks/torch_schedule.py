"""The same plan on torch's own `_PipelineScheduleRuntime`, loaded from what ``octoplan export`` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

import octoplan
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
    octoplan.export_plan(plan, "torch-csv", csv)
    device = torch.device("cpu")
    stages = [PipelineStage(module, stage, len(plan.stages), device) for stage, module in modules.items()]
    schedule = _PipelineScheduleRuntime(stages, plan.job.microbatches, loss_fn=loss)
    schedule._load_csv(str(csv), format="compute_comms")
    return schedule


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
