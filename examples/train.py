"""A training loop of your own around a plan: any optimizer, checkpoints, restarts.

    octoplan compile --model examples/profiles/llama3-8B.json --cluster examples/clusters/h800x4.json \
        --microbatches 8 -o plan.json
    torchrun --nproc-per-node 4 --max-restarts 3 examples/train.py plan.json --steps 100 --folder checkpoints

The model is a toy with as many layers as the plan has: replace `build_layer`, `loss_of` and `batch_of`. Each rank
builds only its own layers. After a crash torchrun starts the ranks again, and they go on from the last checkpoint; it
may also be continued under another plan, on another number of ranks.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from octoplan_runtime import ForwardMode, PipelineExecutor, Progress, joined_group
from octoplan_schemas import Plan, load
from octoplan_schemas.files import write_text

WIDTH, BATCH = 32, 4


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train a toy model by a plan, under torchrun.")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"), help="where checkpoints go")
    parser.add_argument("--every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="longest that a rank may stay in one op, seconds"
    )
    options = parser.parse_args()
    plan = load(options.plan, Plan)
    progress = Progress()
    # Ends every rank with one line that says which rank failed, in which op, and why.
    with joined_group(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options.timeout, progress):
        train(plan, options, progress)


def train(plan: Plan, options: argparse.Namespace, progress: Progress) -> None:
    """Run the loop on this rank."""
    executor = PipelineExecutor(plan, build_layer, loss_of, mode=ForwardMode(seed=0), progress=progress)
    optimizer = torch.optim.AdamW(executor.parameters(), lr=1e-3)
    executor.step_number = resume(options.folder, executor, optimizer)
    while executor.step_number < options.steps:
        inputs, targets = batch_of(executor.step_number, plan.job.microbatches)
        loss = executor.step(inputs, targets)
        optimizer.step()
        optimizer.zero_grad()
        if executor.rank == 0:
            print(f"step {executor.step_number}: loss {loss.item():.9f}", flush=True)
        if executor.step_number % options.every == 0:
            progress.enter("writing a checkpoint")
            save(options.folder, executor, optimizer)


def build_layer(index: int) -> nn.Module:
    """Return layer ``index``; the same parameters on whichever rank holds it."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(index)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.1))


def loss_of(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of one microbatch."""
    return nn.functional.mse_loss(output, targets)


def batch_of(step: int, num_microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of a step: all microbatches along dimension 0."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(num_microbatches * BATCH, WIDTH, generator=generator)
    return inputs, inputs.roll(1, dims=1)


def save(folder: Path, executor: PipelineExecutor, optimizer: torch.optim.Optimizer) -> None:
    """Write one file per rank; the step counts as written once every rank is done."""
    step_folder = folder / str(executor.step_number)
    step_folder.mkdir(parents=True, exist_ok=True)
    moments = {name: optimizer.state[parameter] for name, parameter in executor.named_parameters()}
    state = {"model": executor.state_dict(), "optimizer": moments}
    torch.save(state, step_folder / f"{executor.rank}-of-{executor.plan.num_ranks}.pt")
    dist.barrier()
    if executor.rank == 0:
        write_text(folder / "latest", f"{executor.step_number} {executor.plan.num_ranks}")


def resume(folder: Path, executor: PipelineExecutor, optimizer: torch.optim.Optimizer) -> int:
    """Load the last checkpoint, whatever plan it was written under, and return its step."""
    if not (folder / "latest").exists():
        return 0
    step, num_ranks = (folder / "latest").read_text().split()
    state: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}}
    for rank in range(int(num_ranks)):
        part = torch.load(folder / step / f"{rank}-of-{num_ranks}.pt")
        for key, values in part.items():
            state[key].update(values)
    executor.load_state_dict(state["model"])
    for name, parameter in executor.named_parameters():
        optimizer.state[parameter] = state["optimizer"][name]
    return int(step)


if __name__ == "__main__":
    main()
