"""Real speed on real compute: a model with a heavy head on two ranks, uniform 1F1B beside the plan tuned for it.

Times of the layers are measured while both ranks compute, as they will when they train; the plans are compiled for them
and for this machine's own costs. Then both plans train in the same processes, step by step in turn, right after the
layers have been measured once more: these times give the prediction that is printed beside the measured ratio.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

import octoplan
from octoplan_runtime import PipelineExecutor, Progress, RunOptions, Workload, joined_group, run_plan
from octoplan_runtime.launch import launch_local
from octoplan_runtime.miniature import MiniatureSize, build_miniature
from octoplan_runtime.profiler.options import ProfileOptions
from octoplan_runtime.profiler.profile import profile_workload
from octoplan_schemas import Cluster, ModelGraph, Plan, load, save

NUM_BLOCKS = 12
MICROBATCHES = 8
STRATEGIES = ("1f1b", "octoplan")
SIZE = MiniatureSize(width=128, mlp_width=384, num_tokens=6000, sequence_length=64, microbatch_size=4)
KINDS = ("embedding", *["transformer"] * NUM_BLOCKS, "lm_head")


def heavy_head(repetitions: int, folder: Path) -> None:
    """Measure layers, compile, run, and print measured beside predicted."""
    start(measure_layers, 0, folder)
    model = measured_model(folder)
    save(folder / "calibration.json", _plan(model, "1f1b", blank_cluster()))
    run_plan(RunOptions(str(folder / "calibration.json"), calibrate=str(folder / "machine.json")))
    machine = load(folder / "machine.json", Cluster)
    plans = [_plan(model, strategy, machine) for strategy in STRATEGIES]
    for strategy, plan in zip(STRATEGIES, plans, strict=True):
        save(folder / f"{strategy}.json", plan)
    start(train_in_turn, repetitions, folder)
    # Another model by its hash: the same layers with the times that they had just before.
    latest = measured_model(folder)
    predicted = [_predicted_s(plan, latest, machine) for plan in plans]
    print_table(json.loads((folder / "steps.json").read_text()), predicted)


def start(target: Any, repetitions: int, folder: Path) -> None:
    """Run something on both ranks."""
    if launch_local(target, 2, (repetitions, str(folder))).exit_code:
        raise SystemExit(1)


def _plan(model: ModelGraph, strategy: str, cluster: Cluster) -> Plan:
    # Fused: it is what most people train with, and one op has less overhead than two.
    options = octoplan.CompileOptions(
        MICROBATCHES,
        strategy,
        memory_limit="none",
        backward="fused",
        max_evaluations=2000,
        max_stages_per_device=2,
    )
    return octoplan.compile_plan(model, cluster, options)


def _predicted_s(plan: Plan, model: ModelGraph, machine: Cluster) -> float:
    """Simulate the plan's programs with other times."""
    unbound = plan.to_document()
    unbound["model"]["sha256"] = unbound["cluster"]["sha256"] = ""
    return octoplan.simulate(Plan.from_document(unbound), model, machine).makespan_s


def print_table(steps: list[list[float]], predicted: list[float]) -> None:
    """Print medians of both, and the median of the ratios of steps that follow each other."""
    ratios = sorted(first / second for first, second in steps)
    title = f"a heavy head on 2 ranks, {MICROBATCHES} microbatches, {len(steps)} steps of each in turn"
    table = Table(title=title)
    for column in ("strategy", "measured", "predicted", "error"):
        table.add_column(column, justify="left" if column == "strategy" else "right", no_wrap=True)
    for strategy, own, expected in zip(STRATEGIES, zip(*steps, strict=True), predicted, strict=True):
        found = median(own)
        table.add_row(strategy, f"{found:.3f} s", f"{expected:.3f} s", f"{found / expected - 1:+.1%}")
    Console(width=120).print(table)
    quarter = len(ratios) // 4
    print(
        f"speedup: {median(ratios):.3f} measured ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f} for the middle "
        f"half), {predicted[0] / predicted[1]:.3f} predicted"
    )


def blank_cluster() -> Cluster:
    """Return two devices without costs of their own, for a plan whose number of ranks alone counts."""
    link = {"latency_s": 0.0, "bandwidth": 1e12}
    kind = {"memory_bytes": 1e12, "peak_flops": 1.0, "memory_bandwidth": 1.0, "op_overhead_s": 0.0}
    return Cluster.from_document(
        {
            "format": Cluster.FORMAT,
            "name": "two",
            "device_types": {"cpu": kind},
            "devices": [{"name": f"cpu{rank}", "type": "cpu", "node": "here"} for rank in range(2)],
            "links": {"intra_node": link, "inter_node": link},
        }
    )


def blank_model(num_blocks: int) -> ModelGraph:
    """Return layers whose kinds alone count."""
    free = {"forward_s": 0, "backward_input_s": 0, "backward_weight_s": 0}
    sizes = ("state_bytes", "activation_bytes", "weight_stash_bytes", "workspace_bytes", "output_bytes")
    kinds = (KINDS[0], *[KINDS[1]] * num_blocks, KINDS[-1])
    return ModelGraph.from_document(
        {
            "format": ModelGraph.FORMAT,
            "name": "heavy-head",
            "layers": [
                {"name": f"layers.{i}", "kind": kind, "cost": {"*": free}, **dict.fromkeys(sizes, 0)}
                for i, kind in enumerate(kinds)
            ],
        }
    )


def workload(num_blocks: int = NUM_BLOCKS) -> Workload:
    """Return the miniature that is trained."""
    return build_miniature(blank_model(num_blocks), MICROBATCHES, size=SIZE)


def measure_layers(repetitions: int, folder: str) -> None:
    """On both ranks at once: measure one layer of each kind, and write the times."""
    rank = int(os.environ["RANK"])
    with joined_group(rank, 2, 120.0, Progress()):
        write_times(rank, folder)


def write_times(rank: int, folder: str) -> None:
    """Measure an embedding, a block and the head."""
    options = ProfileOptions(MICROBATCHES, backward="fused", repetitions=25)
    dist.barrier()
    graph = profile_workload(workload(1), "heavy-head", options)
    save(Path(folder, f"times-{rank}.json"), graph)
    dist.barrier()


def measured_model(folder: Path) -> ModelGraph:
    """Return all layers with the times of their kind, averaged over the ranks that have measured them."""
    graphs = [load(folder / f"times-{rank}.json", ModelGraph).to_document() for rank in range(2)]
    document = graphs[0]
    first, block, head = (average([graph["layers"][place] for graph in graphs]) for place in range(3))
    layers = [first, *(dict(block) for _ in range(NUM_BLOCKS)), head]
    document["layers"] = [{**layer, "name": f"layers.{index}"} for index, layer in enumerate(layers)]
    return ModelGraph.from_document(document)


def average(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a layer with the mean of the times of several."""
    costs = [entry["cost"]["*"] for entry in entries]
    return {**entries[0], "cost": {"*": {name: fmean(cost[name] for cost in costs) for name in costs[0]}}}


def train_in_turn(repetitions: int, folder: str) -> None:
    """On both ranks: train a step of each plan in turn; rank 0 writes the seconds of every step."""
    rank = int(os.environ["RANK"])
    progress = Progress()
    with joined_group(rank, 2, 120.0, progress):
        trained = workload()
        executors = [
            PipelineExecutor(
                load(Path(folder, f"{strategy}.json"), Plan), trained.layer, trained.loss, progress=progress
            )
            for strategy in STRATEGIES
        ]
        batch = trained.batch(0)
        for executor in executors:
            executor.step(*batch)
        gc.freeze()
        write_times(rank, folder)
        steps = [[makespan_s(executor, batch) for executor in executors] for _ in range(repetitions)]
        if rank == 0:
            Path(folder, "steps.json").write_text(json.dumps(steps), encoding="utf-8")


def makespan_s(executor: PipelineExecutor, batch: tuple[Any, Any]) -> float:
    """Return the seconds from the first op of a step to the end of the last, over both ranks."""
    dist.barrier()
    executor.step(*batch)
    compute = [place for place, word in enumerate(executor.plan.programs[executor.rank]) if "_" not in word]
    ends = torch.tensor(
        [
            -min(executor.times.start[place] for place in compute),
            max(executor.times.end[place] for place in compute),
        ],
        dtype=torch.float64,
    )
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return float(ends.sum())
