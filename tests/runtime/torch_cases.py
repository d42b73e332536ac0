"""What each process of `test_torch_schedule` does: one plan on torch's runtime and on ours, same parameters."""

from __future__ import annotations

import json
import os
from pathlib import Path

from torch import nn

from benchmarks.torch_schedule import torch_schedule, torch_step
from octoplan_runtime import PipelineExecutor
from octoplan_runtime.progress import Progress
from octoplan_runtime.session import joined_group
from octoplan_schemas import Plan
from tests.runtime import plans
from tests.runtime.feature_cases import MICROBATCHES, NUM_LAYERS, Dense, close, plan_of, seeded, vectors


def cases(num_ranks: int) -> dict[str, Plan]:
    """1F1B and a loop of two stages per rank, fused and split."""
    found = {}
    for kinds in (("B",), ("I", "W")):
        found[f"1F1B, {'+'.join(kinds)}"] = plan_of(num_ranks, kinds)
        num_stages = 2 * num_ranks
        bounds = [(stage, stage + 1) for stage in range(num_stages - 1)] + [(num_stages - 1, NUM_LAYERS)]
        order: list[plans.Op] = [(stage, "F", m) for m in range(MICROBATCHES) for stage in range(num_stages)]
        for kind in kinds:
            order += [(stage, kind, m) for m in range(MICROBATCHES) for stage in reversed(range(num_stages))]
        ranks = [stage % num_ranks for stage in range(num_stages)]
        found[f"loop, {'+'.join(kinds)}"] = plans.make_plan(bounds, ranks, order, MICROBATCHES)
    return found


def compare_with_torch(directory: str) -> None:
    """Run on every rank and write ``RANK.json``."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    progress = Progress()
    found = {}
    with joined_group(rank, num_ranks, 60.0, progress):
        for number, (name, plan) in enumerate(cases(num_ranks).items()):
            found[name] = _compare(plan, Path(directory, f"{rank}-{number}.csv"), progress)
    Path(directory, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def _compare(plan: Plan, csv: Path, progress: Progress) -> list[str]:
    own = PipelineExecutor(plan, lambda i: seeded(i, Dense), nn.functional.mse_loss, progress=progress)
    theirs = {
        stage.id: nn.Sequential(*(seeded(index, Dense) for index in range(*stage.layers)))
        for stage in plan.stages_of(own.rank)
    }
    progress.enter("torch's schedule")
    schedule = torch_schedule(plan, theirs, nn.functional.mse_loss, csv)
    own.step(*vectors(0))
    torch_step(schedule, plan, vectors(0))
    complaints = []
    for stage, module in theirs.items():
        for ours, expected in zip(own.modules[stage].parameters(), module.parameters(), strict=True):
            assert ours.grad is not None
            assert expected.grad is not None
            difference = (ours.grad - expected.grad).abs().max().item()
            scale = expected.grad.abs().max().item()
            complaints += close("gradient", scale + difference, scale)
    return complaints
