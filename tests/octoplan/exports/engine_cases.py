"""What each process of `test_engine` does: exported schedules on torch's engine, gradients against one process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from octoplan_runtime.progress import Progress
from octoplan_runtime.session import joined_group
from octoplan_schemas import Plan, load
from tests.runtime.feature_cases import MICROBATCHES, Dense, microbatches, run_layers, seeded, vectors


def run_on_torch(directory: str) -> None:
    """Run every plan of the directory on this rank and write what differs to ``RANK.json``."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(directory)
    progress = Progress()
    found = {}
    with joined_group(rank, num_ranks, 60.0, progress):
        for file in sorted(folder.glob("*.plan.json")):
            plan = load(file, Plan)
            for csv in sorted(folder.glob(f"{file.name.removesuffix('.plan.json')}.*.csv")):
                progress.enter(csv.name)
                found[csv.name] = complaints(plan, csv, rank)
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def complaints(plan: Plan, csv: Path, rank: int) -> list[str]:
    """Load the schedule into torch's engine, run a step, and compare."""
    assert plan.job.microbatches == MICROBATCHES
    own = {
        stage.id: nn.Sequential(*(seeded(index, Dense) for index in range(*stage.layers)))
        for stage in plan.stages_of(rank)
    }
    device = torch.device("cpu")
    stages = [PipelineStage(module, stage, len(plan.stages), device) for stage, module in own.items()]
    schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    schedule._load_csv(str(csv), format="compute_only" if ".titan." in csv.name else "compute_comms")
    inputs, targets = vectors(0)
    first = (inputs,) if plan.stages[0].rank == rank else ()
    if plan.stages[-1].rank == rank:
        schedule.step(*first, target=targets, losses=[])
    else:
        schedule.step(*first)
    reference = reference_layers(plan.stages[-1].layers[1])
    return [
        f"layer {index}, {name} is off"
        for stage in plan.stages_of(rank)
        for index, layer in zip(range(*stage.layers), own[stage.id], strict=True)
        for name, parameter in layer.named_parameters()
        if not is_close(parameter.grad, reference[index].get_parameter(name).grad)
    ]


def reference_layers(num_layers: int) -> list[nn.Module]:
    """Return all layers with the gradients of one process."""
    layers = [seeded(index, Dense) for index in range(num_layers)]
    for inputs, targets in microbatches(vectors(0)):
        (nn.functional.mse_loss(run_layers(layers, inputs), targets) / MICROBATCHES).backward()
    return layers


def is_close(found: torch.Tensor | None, expected: torch.Tensor | None) -> bool:
    """Compare gradients as a share of the largest."""
    if found is None or expected is None:
        return False
    return bool((found - expected).abs().max() <= 1e-12 * expected.abs().max())
