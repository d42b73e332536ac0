"""What each of the four processes of `test_replicas` does: two pipelines of two ranks, on the dimensions of a mesh."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from octoplan_runtime import PipelineExecutor, Progress, joined_group
from octoplan_runtime.replicas import Wrap
from octoplan_schemas import InputError, Plan
from tests.runtime.feature_cases import (
    NUM_LAYERS,
    WIDTH,
    Dense,
    close,
    folded_plan,
    plan_of,
    run_layers,
    seeded,
    vectors,
)


class Partly(nn.Module):
    """One weight takes part in some microbatches only, one never."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.sometimes = nn.Parameter(torch.ones(WIDTH))
        self.never = nn.Parameter(torch.ones(WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.linear(hidden))
        return hidden * self.sometimes if hidden.sum() > 0 else hidden


class Counter:
    """How often gradients were reduced over the replicas."""

    def __init__(self) -> None:
        self.count = 0

    def hook(self, state, bucket):  # DDP refuses annotations that are text
        self.count += 1
        gradient = bucket.buffer() / 2
        return dist.all_reduce(gradient, group=state, async_op=True).get_future().then(lambda f: f.value()[0])


def wraps(mesh: DeviceMesh, counter: Counter) -> dict[str, Wrap]:
    """Return the ways to wrap a stage."""

    def ddp(stage: nn.Module) -> nn.Module:
        outer = DistributedDataParallel(stage, process_group=mesh.get_group("data"))
        outer.register_comm_hook(mesh.get_group("data"), counter.hook)
        return outer

    def plain_ddp(stage: nn.Module) -> nn.Module:
        return DistributedDataParallel(
            stage,
            process_group=mesh.get_group("data"),
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
        )

    def sharded(stage: nn.Module) -> nn.Module:
        module: nn.Module = fully_shard(stage, mesh=mesh["data"])
        return module

    def sharded_by_layer(stage: nn.Module) -> nn.Module:
        for layer in stage.layers.values():
            fully_shard(layer, mesh=mesh["data"])
        return sharded(stage)

    return {
        "DDP": ddp,
        "DDP with its own reduction": plain_ddp,
        "FSDP2": sharded,
        "FSDP2 by layer": sharded_by_layer,
    }


def layer_of(index: int) -> nn.Module:
    return seeded(index, Partly if index == 2 else Dense)


def check_replicas(directory: str) -> None:
    """Run on every rank and write ``RANK.json``."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found: dict[str, list[str]] = {}
    progress = Progress()
    with joined_group(rank, num_ranks, 60.0, progress):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
        counter = Counter()
        for name, wrap in wraps(mesh, counter).items():
            for kind, plan in {"fused": plan_of(2, ("B",)), "split": folded_plan(2, ("I", "W"))}.items():
                found[f"{name}, {kind}"] = _check(mesh, plan, wrap, counter, progress)
                progress.enter("the next case")
        found["parts of a stage sharded"] = _check_refusal(mesh, progress)
    Path(directory, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def _check(mesh: DeviceMesh, plan: Plan, wrap: Wrap, counter: Counter, progress: Progress) -> list[str]:
    """Two steps without zeroing gradients, one after an optimizer step, and a state that loads."""
    group = mesh.get_group("pipeline")
    options = {"group": group, "wrap": wrap, "progress": progress}
    executor = PipelineExecutor(plan, layer_of, nn.functional.mse_loss, **options)
    layers = [layer_of(index) for index in range(NUM_LAYERS)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    optimizers = [torch.optim.SGD(group, lr=0.1) for group in (executor.parameters(), parameters)]
    complaints = []
    for step in range(3):
        counter.count = 0
        loss = executor.step(*vectors(2 * step + mesh.get_local_rank("data"))).item()
        own = 0.0
        for replica in range(2):
            expected = _plain(layers, 2 * step + replica)
            own = expected.item() if replica == mesh.get_local_rank("data") else own
            (expected / 2).backward()
        complaints += close(f"loss {step}", loss, own)
        complaints += [f"step {step}: {line}" for line in _differences(executor, layers)]
        if counter.count not in (0, len(executor.modules)):
            complaints.append(f"step {step}: {counter.count} reductions of {len(executor.modules)} stages")
        for optimizer in optimizers if step > 0 else []:
            optimizer.step()
            optimizer.zero_grad()
    return complaints + _check_state(
        executor, layers, PipelineExecutor(plan, _other, nn.functional.mse_loss, **options)
    )


def _other(index: int) -> nn.Module:
    return seeded(index + 50, Partly if index == 2 else Dense)


def _plain(layers: list[nn.Module], number: int) -> torch.Tensor:
    losses = [
        nn.functional.mse_loss(run_layers(layers, x), y)
        for x, y in zip(*(tensor.chunk(4) for tensor in vectors(number)), strict=True)
    ]
    return torch.stack(losses).mean()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    gather: Callable[[], torch.Tensor] | None = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def _differences(executor: PipelineExecutor, layers: list[nn.Module]) -> list[str]:
    found = []
    for name, parameter in executor.named_parameters():
        _, index, path = name.split(".", 2)
        expected = layers[int(index)].get_parameter(path).grad
        gradient = None if parameter.grad is None else _whole(parameter.grad)
        if expected is None or gradient is None:
            if any(value is not None and value.any() for value in (expected, gradient)):
                found.append(f"{name} has {gradient}, not {expected}")
        elif not (gradient - expected).abs().max() <= 1e-12 * expected.abs().max():
            found.append(f"{name} off by {(gradient - expected).abs().max():.3g}")
    return found


def _check_state(executor: PipelineExecutor, layers: list[nn.Module], second: PipelineExecutor) -> list[str]:
    """Whole tensors under global names load into a wrapped executor, which then gives the same."""
    state = {name: _whole(value) for name, value in executor.state_dict().items()}
    second.load_state_dict(state)
    inputs = vectors(0)[0]
    with torch.no_grad():
        expected = torch.cat([run_layers(layers, part) for part in inputs.chunk(4)])
    found = second.eval(inputs)
    if found is not None and not torch.allclose(found, expected, rtol=1e-12, atol=0):
        return ["another output after loading"]
    names = {name.split(".", 2)[0] for name in state}
    return [] if names == {"layers"} else [f"names begin with {names}"]


def _check_refusal(mesh: DeviceMesh, progress: Progress) -> list[str]:
    def partly(stage: nn.Module) -> nn.Module:
        fully_shard(next(iter(stage.layers.values())), mesh=mesh["data"])
        return stage

    try:
        PipelineExecutor(
            plan_of(2),
            layer_of,
            nn.functional.mse_loss,
            group=mesh.get_group("pipeline"),
            wrap=partly,
            progress=progress,
        )
    except InputError as error:
        return [] if "fully_shard must be applied to the stage too" in str(error) else [str(error)]
    return ["accepted"]
