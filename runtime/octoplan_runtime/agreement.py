"""What is checked before a plan runs: that group, layers and the other ranks' plans fit it."""

from __future__ import annotations

import torch
import torch.distributed as dist

from octoplan_runtime.stage_module import Layers, listed_layers
from octoplan_schemas import InputError, Plan


def require_world_size(plan: Plan, group: dist.ProcessGroup | None) -> None:
    """Refuse a group of another number of ranks."""
    size = dist.get_world_size(group)
    if size != plan.num_ranks:
        raise InputError(
            f"the plan is for {plan.num_ranks} ranks, but the process group has {size}; "
            f"start {plan.num_ranks} processes, or compile a plan for {size} devices"
        )


def require_layer_count(plan: Plan, layers: Layers) -> None:
    """Refuse a list of another number of layers."""
    num_layers, listed = plan.stages[-1].layers[1], listed_layers(layers)
    if listed is not None and len(listed) != num_layers:
        raise InputError(
            f"the plan is for {num_layers} layers, but {len(listed)} are given; give all layers of the model that "
            "it was compiled for"
        )


def require_same_plan(plan: Plan, group: dist.ProcessGroup | None, device: torch.device) -> None:
    """Compare the plan's hash over ranks: two plans with the same name would hang, or worse, not hang."""
    own = torch.frombuffer(bytearray.fromhex(plan.sha256()), dtype=torch.uint8).to(device)
    others = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(others, own, group=group)
    different = [rank for rank, other in enumerate(others) if not torch.equal(other, others[0])]
    if different:
        raise InputError(f"rank {different[0]} has another plan than rank 0; give every rank the same file")
