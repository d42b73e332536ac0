"""This runtime beside torch's own: ``python -m benchmarks.runtime [--ranks 4] [--repetitions 3]``.

Three comparisons, each of the same plan on both, step by step in turn in the same processes:

* emulated devices: layers that sleep for the plan's times, so that order and overhead count and arithmetic does not;
* small real models, one torch thread per rank, with the peak of live tensors of both;
* a model with a heavy head on two ranks: uniform 1F1B beside the plan tuned for measured costs, and the prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import octoplan
from benchmarks.torch_schedule import torch_schedule, torch_step
from octoplan_runtime import PipelineExecutor, Progress, build_miniature, joined_group
from octoplan_runtime.emulation import EmulatedCosts
from octoplan_runtime.launch import launch_local
from octoplan_runtime.miniature import MiniatureSize
from octoplan_schemas import Cluster, ModelGraph, Plan, load, save

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STRATEGIES = ("1f1b:balanced", "interleaved-1f1b", "zb-h1:balanced")
SIZE = MiniatureSize(
    width=128, mlp_width=384, num_heads=8, num_key_heads=4, sequence_length=64, microbatch_size=4
)
HEAD_SIZE = MiniatureSize(width=128, mlp_width=384, num_tokens=6000, sequence_length=64, microbatch_size=4)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def main() -> None:
    """Print all three tables."""
    parser = argparse.ArgumentParser(description="Compare with torch's own pipeline runtime.")
    parser.add_argument("--ranks", type=int, choices=(4, 8), default=4)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=("emulated", "real", "head"))
    options = parser.parse_args()
    chosen = [options.only] if options.only else ["emulated", "real", "head"]
    with tempfile.TemporaryDirectory(prefix="octoplan-") as folder:
        if "emulated" in chosen:
            compare("emulated devices", options.ranks, "emulated", options.repetitions, Path(folder))
        if "real" in chosen:
            compare("small real model", 2, "real", options.repetitions, Path(folder))
        if "head" in chosen:
            heavy_head(options.repetitions, Path(folder))


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
        own, torchs = (median(row[name] for row in rows) for name in ("own_s", "torch_s"))
        predicted = f"{rows[0]['predicted_s']:.3f} s" if kind == "emulated" else "-"
        peaks = [f"{max(row[name] for row in rows) / 1e6:.2f} MB" for name in ("own_bytes", "torch_bytes")]
        table.add_row(strategy, f"{own:.3f} s", f"{torchs:.3f} s", f"{own / torchs:.3f}", predicted, *peaks)
    Console().print(table)


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
    """On every rank: one step of warm-up, one that counts live tensors, then timed steps, each on both in turn."""
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
        for run in runs:
            run()
        peaks = [peak_bytes(run) for run in runs]
        times: list[list[float]] = [[], []]
        for _ in range(repetitions):
            for number, run in enumerate(runs):
                progress.enter("a timed step")
                times[number].append(timed(run))
        numbers = {"own_s": median(times[0]), "torch_s": median(times[1]), "predicted_s": predicted_s}
        numbers.update(own_bytes=peaks[0], torch_bytes=peaks[1])
        Path(folder, f"{rank}.json").write_text(json.dumps(numbers), encoding="utf-8")


def timed(run: Callable[[], object]) -> float:
    """Return the seconds from all ranks' start to all ranks' end."""
    dist.barrier()
    start = time.monotonic()
    run()
    dist.barrier()
    return time.monotonic() - start


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of tensors that ops have made and that are still alive; their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, storage.nbytes())

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the peak of what a step allocates on this rank."""
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


@dataclass(frozen=True)
class HeadRun:
    """One plan of the heavy head."""

    strategy: str
    measured_s: float
    predicted_s: float


def heavy_head(repetitions: int, folder: Path) -> None:
    """Measure layers, compile, run, and print measured beside predicted."""
    model = measured_model(12)
    cluster = first_devices(load(EXAMPLES / "clusters" / "h800x4.json", Cluster), 2)
    save(folder / "model.json", model)
    runs = []
    for strategy in ("1f1b", "octoplan"):
        # Fused: a backward in two ops costs torch more than their sum, which a cost table cannot say.
        options = octoplan.CompileOptions(
            8, strategy, memory_limit="none", backward="fused", max_evaluations=300, max_stages_per_device=2
        )
        plan = octoplan.compile_plan(model, cluster, options)
        save(folder / "plan.json", plan)
        if launch_local(run_head, 2, (repetitions, str(folder))).exit_code:
            raise SystemExit(1)
        measured_s = json.loads((folder / "head.json").read_text())
        runs.append(HeadRun(strategy, measured_s, plan.predicted.makespan_s))
    table = Table(title=f"a heavy head on 2 ranks, 8 microbatches, median of {repetitions} steps")
    for column in ("strategy", "measured", "predicted", "measured speedup", "predicted speedup"):
        table.add_column(column, justify="left" if column == "strategy" else "right", no_wrap=True)
    for run in runs:
        ratios = (runs[0].measured_s / run.measured_s, runs[0].predicted_s / run.predicted_s)
        table.add_row(
            run.strategy, f"{run.measured_s:.3f} s", f"{run.predicted_s:.3f} s", *(f"{x:.3f}" for x in ratios)
        )
    Console().print(table)


def run_head(repetitions: int, folder: str) -> None:
    """On every rank: run the plan; rank 0 writes the median."""
    plan = load(Path(folder) / "plan.json", Plan)
    workload = build_miniature(
        load(Path(folder) / "model.json", ModelGraph), plan.job.microbatches, size=HEAD_SIZE
    )
    progress = Progress()
    with joined_group(int(os.environ["RANK"]), 2, 120.0, progress):
        executor = PipelineExecutor(plan, workload.layer, workload.loss, progress=progress)
        batch = workload.batch(0)
        executor.step(*batch)
        measured_s = median(timed(lambda: executor.step(*batch)) for _ in range(repetitions))
        if executor.rank == 0:
            Path(folder, "head.json").write_text(json.dumps(measured_s), encoding="utf-8")


def measured_model(num_blocks: int) -> ModelGraph:
    """Return an embedding, equal blocks and a large head with the times that their ops take here."""
    torch.set_num_threads(1)
    kinds = ["embedding", *["transformer"] * num_blocks, "lm_head"]
    sizes = ("state_bytes", "activation_bytes", "weight_stash_bytes", "workspace_bytes", "output_bytes")
    free = {"forward_s": 0, "backward_input_s": 0, "backward_weight_s": 0}
    document = {
        "format": ModelGraph.FORMAT,
        "name": "heavy-head",
        "layers": [
            {"name": f"{index}-{kind}", "kind": kind, "cost": {"*": free}, **dict.fromkeys(sizes, 0)}
            for index, kind in enumerate(kinds)
        ],
    }
    workload = build_miniature(ModelGraph.from_document(document), 1, size=HEAD_SIZE)
    inputs, targets = workload.batch(0)
    assert isinstance(inputs, torch.Tensor)
    hidden = torch.randn(*inputs.shape, HEAD_SIZE.width)
    costs = {
        "embedding": layer_cost(workload.layer(0), inputs, lambda output: output),
        "transformer": layer_cost(workload.layer(1), hidden, lambda output: output),
        "lm_head": layer_cost(
            workload.layer(num_blocks + 1), hidden, lambda out: workload.loss(out, targets)
        ),
    }
    for entry in document["layers"]:
        entry["cost"] = {"*": costs[entry["kind"]]}
    return ModelGraph.from_document(document)


def layer_cost(
    layer: nn.Module, inputs: torch.Tensor, finish: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, float]:
    """Return the median seconds of forward, input gradient and weight gradient."""
    leaf = inputs.requires_grad_() if inputs.is_floating_point() else inputs
    weights = list(layer.parameters())
    forwards, inner, outer = [], [], []
    for _ in range(15):
        start = time.perf_counter()
        output = finish(layer(leaf))
        forwards.append(time.perf_counter() - start)
        ones = torch.ones_like(output)
        start = time.perf_counter()
        if leaf.requires_grad:
            torch.autograd.grad(output, [leaf], ones, retain_graph=True)
        inner.append(time.perf_counter() - start)
        start = time.perf_counter()
        torch.autograd.grad(output, [*([leaf] if leaf.requires_grad else []), *weights], ones)
        outer.append(time.perf_counter() - start)
    return costs_of(median(forwards), median(inner), median(outer))


def costs_of(forward_s: float, input_s: float, whole_s: float) -> dict[str, float]:
    """Split the whole backward into the part for the input and the rest."""
    first_s = min(input_s, whole_s)
    return {"forward_s": forward_s, "backward_input_s": first_s, "backward_weight_s": whole_s - first_s}


if __name__ == "__main__":
    main()
