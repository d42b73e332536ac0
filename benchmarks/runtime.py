"""This runtime beside torch's own: ``python -m benchmarks.runtime [--ranks 4] [--repetitions 3]``.

Three comparisons, each of the same plan on both, step by step in turn in the same processes:

* emulated devices: layers that sleep for the plan's times, so that order and overhead count and arithmetic does not;
* small real models, one torch thread per rank, with the peak of live tensors of both;
* a model with a heavy head on two ranks: uniform 1F1B beside the plan tuned for measured costs, and the prediction.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import nn

import octoplan
from benchmarks.heavy_head import heavy_head
from benchmarks.torch_schedule import torch_schedule, torch_step
from octoplan_runtime import PipelineExecutor, Progress, build_miniature, joined_group
from octoplan_runtime.emulation import EmulatedCosts
from octoplan_runtime.launch import launch_local
from octoplan_runtime.miniature import MiniatureSize
from octoplan_runtime.profiler.live_tensors import LiveTensors
from octoplan_schemas import Cluster, ModelGraph, Plan, load, save

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STRATEGIES = ("1f1b:balanced", "interleaved-1f1b", "zb-h1:balanced")
SIZE = MiniatureSize(
    width=128, mlp_width=384, num_heads=8, num_key_heads=4, sequence_length=64, microbatch_size=4
)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def main() -> None:
    """Print all three tables."""
    parser = argparse.ArgumentParser(description="Compare with torch's own pipeline runtime.")
    parser.add_argument("--ranks", type=int, choices=(4, 8), default=4)
    parser.add_argument("--repetitions", type=int, default=5, help="timed steps on each (default: 5)")
    parser.add_argument("--only", choices=("emulated", "real", "head"))
    options = parser.parse_args()
    chosen = [options.only] if options.only else ["emulated", "real", "head"]
    with tempfile.TemporaryDirectory(prefix="octoplan-") as folder:
        if "emulated" in chosen:
            compare("emulated devices", options.ranks, "emulated", options.repetitions, Path(folder))
        if "real" in chosen:
            compare("small real model", 2, "real", options.repetitions, Path(folder))
        if "head" in chosen:
            heavy_head(5 * options.repetitions, Path(folder))


def compare(title: str, num_ranks: int, kind: str, repetitions: int, folder: Path) -> None:
    """Run one model's plans on both runtimes and print a table."""
    cluster = load(EXAMPLES / "clusters" / "h800x4.json", Cluster)
    cluster = first_devices(cluster, num_ranks)
    model = octoplan.import_model(
        EXAMPLES / "profiles" / "llama3-8B.json", octoplan.ImportOptions(cluster=cluster)
    )
    save(folder / "model.json", model)
    table = Table(
        title=f"{title}: {model.name}, {num_ranks} ranks, 8 microbatches, median of {repetitions} steps"
    )
    for column in ("strategy", "this runtime", "torch", "ratio", "predicted", "peak here", "peak of torch"):
        table.add_column(column, justify="left" if column == "strategy" else "right", no_wrap=True)
    for strategy in STRATEGIES:
        options = octoplan.CompileOptions(8, strategy, memory_limit="none")
        save(folder / "plan.json", octoplan.compile_plan(model, cluster, options))
        rows = measure(num_ranks, kind, repetitions, folder)
        own, torchs, ratio = (median(row[name] for row in rows) for name in ("own_s", "torch_s", "ratio"))
        predicted = f"{rows[0]['predicted_s']:.3f} s" if kind == "emulated" else "-"
        peaks = [f"{max(row[name] for row in rows) / 1e3:,.1f} kB" for name in ("own_bytes", "torch_bytes")]
        table.add_row(strategy, f"{own:.3f} s", f"{torchs:.3f} s", f"{ratio:.3f}", predicted, *peaks)
    Console(width=120).print(table)


def first_devices(cluster: Cluster, num_ranks: int) -> Cluster:
    """Return a cluster of equal devices with another number of them."""
    document = cluster.to_document()
    first = document["devices"][0]
    document["devices"] = [{**first, "name": f"device{rank}"} for rank in range(num_ranks)]
    return Cluster.from_document(document)


def measure(num_ranks: int, kind: str, repetitions: int, folder: Path) -> list[dict[str, float]]:
    """Return what every rank has measured."""
    run = launch_local(run_both, num_ranks, (kind, repetitions, str(folder)))
    if run.exit_code:
        raise SystemExit(run.exit_code)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]


def run_both(kind: str, repetitions: int, folder: str) -> None:
    """On every rank: a first step that counts live tensors, a second to warm up, then timed steps, on both in turn."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plan = load(Path(folder) / "plan.json", Plan)
    progress = Progress()
    with joined_group(rank, num_ranks, 120.0, progress):
        layer, loss, batch, predicted_s = (
            emulated_model(plan) if kind == "emulated" else real_model(plan, folder)
        )
        executor = PipelineExecutor(plan, layer, loss, progress=progress)
        modules = {
            stage.id: nn.Sequential(*(layer(index) for index in range(*stage.layers)))
            for stage in plan.stages_of(rank)
        }
        schedule = torch_schedule(plan, modules, loss, Path(folder, f"{rank}.csv"))
        runs = (lambda: executor.step(*batch), lambda: torch_step(schedule, plan, batch))
        peaks = [peak_bytes(run) for run in runs]
        for run in runs:
            run()
        times: list[list[float]] = [[], []]
        gc.freeze()  # neither is to pay for a full collection
        for repetition in range(repetitions):
            for number in (0, 1) if repetition % 2 == 0 else (1, 0):
                progress.enter("a timed step")
                times[number].append(timed(runs[number]))
        numbers = {"own_s": median(times[0]), "torch_s": median(times[1]), "predicted_s": predicted_s}
        numbers["ratio"] = median(own / torchs for own, torchs in zip(*times, strict=True))
        numbers.update(own_bytes=peaks[0], torch_bytes=peaks[1])
        Path(folder, f"{rank}.json").write_text(json.dumps(numbers), encoding="utf-8")


def timed(run: Callable[[], object]) -> float:
    """Return the seconds from all ranks' start to all ranks' end."""
    dist.barrier()
    start = time.monotonic()
    run()
    dist.barrier()
    return time.monotonic() - start


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the peak of what a first step allocates on this rank, buffers for receives and gradients included."""
    dist.barrier()
    with LiveTensors() as live:
        run()
    return live.peak


class _SleepInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return gradients[0], None, None


class _SleepWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds)
        return gradients[0], None


class SleepingLayer(nn.Module):
    """Sleeps in its forward, for its input's gradient, and for its weight's."""

    def __init__(self, forward_s: float, backward_s: float, weight_s: float) -> None:
        super().__init__()
        self.times = forward_s, backward_s, weight_s
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the input's values."""
        forward_s, backward_s, weight_s = self.times
        slept: torch.Tensor = _SleepInput.apply(hidden, forward_s, backward_s)  # type: ignore[no-untyped-call]
        weight: torch.Tensor = _SleepWeight.apply(self.weight, weight_s)  # type: ignore[no-untyped-call]
        return slept + weight


def emulated_model(
    plan: Plan,
) -> tuple[Callable[[int], nn.Module], Loss, tuple[torch.Tensor, torch.Tensor], float]:
    """Return layers of which the first of each stage sleeps for the whole stage, ops 50 ms long on average."""
    costs = EmulatedCosts.of(plan, None)
    stage_at = {stage.layers[0]: stage.id for stage in plan.stages}

    def layer(index: int) -> nn.Module:
        if index not in stage_at:
            return nn.Identity()
        times = costs.ops[stage_at[index]]
        # The first stage has no input to find a gradient for; its W does the whole backward, on both runtimes.
        weight_s = times["B"] if index == 0 else times["W"]
        return SleepingLayer(times["F"], times["I"], weight_s)

    size = (plan.job.microbatches, 4)
    return (
        layer,
        nn.functional.mse_loss,
        (torch.ones(size), torch.ones(size)),
        costs.scale * plan.predicted.makespan_s,
    )


def real_model(
    plan: Plan, folder: str
) -> tuple[Callable[[int], nn.Module], Loss, tuple[torch.Tensor, torch.Tensor], float]:
    """Return a miniature of the model."""
    workload = build_miniature(
        load(Path(folder) / "model.json", ModelGraph), plan.job.microbatches, size=SIZE
    )
    inputs, targets = workload.batch(0)
    assert isinstance(inputs, torch.Tensor)
    assert isinstance(targets, torch.Tensor)
    return workload.layer, workload.loss, (inputs, targets), 0.0


if __name__ == "__main__":
    main()
