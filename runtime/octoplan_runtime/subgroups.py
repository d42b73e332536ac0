"""Communicators between some ranks of a group, made by these ranks alone.

``dist.new_group`` wants every process of the run to take part in every group, also those of other pipelines; with
``use_local_synchronization`` it derives the name, by which members find each other, from how many groups a process has
made so far, and ranks that are in a different number of them never meet. Here the name says which ranks talk and what
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

#: Longer than any op: a hang is the watchdog's to tell.
_TIMEOUT = timedelta(minutes=30)


class Communicator(Protocol):
    """What torch's backends do; ranks are counted among those that are connected."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> dist.Work:
        """Post a send."""

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> dist.Work:
        """Post a receive."""

    def allreduce(self, tensors: list[torch.Tensor]) -> dist.Work:
        """Sum in place."""

    def allgather(self, outputs: list[list[torch.Tensor]], tensors: list[torch.Tensor]) -> dist.Work:
        """Collect one tensor of every rank."""

    def broadcast(self, tensor: torch.Tensor, root: int) -> dist.Work:
        """Copy from one rank to all."""


class Subgroups:
    """Makes communicators; every rank of the group makes one of these.

    Parameters
    ----------
    group:
        None for the default group.
    device:
        Where the tensors are that will be sent: NCCL for CUDA, gloo otherwise.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self._rank = dist.get_rank(group)
        self._device = device
        # A second executor over the same ranks must not meet the first one.
        token = torch.randint(1 << 62, (1,), device=device)
        dist.broadcast(token, group=group, group_src=0)
        store = dist.distributed_c10d._get_default_store()
        self._store = PrefixStore(f"octoplan/subgroups/{int(token)}", store)

    def make(self, ranks: Sequence[int], purpose: str) -> Communicator:
        """Connect some ranks of the group, this one among them; they all call this with the same arguments.

        Calls must follow an order that all ranks share, or they wait for each other in a circle.
        """
        store = PrefixStore(f"{purpose}/{','.join(map(str, ranks))}", self._store)
        own = ranks.index(self._rank)
        made: Any
        if self._device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _TIMEOUT
            made = dist.ProcessGroupNCCL(store, own, len(ranks), options)
        else:
            made = dist.ProcessGroupGloo(store, own, len(ranks), _TIMEOUT)
        return cast(Communicator, made)
