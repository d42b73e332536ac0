"""Stages that are replicated or sharded over a data-parallel group: `DistributedDataParallel` and FSDP2 in a pipeline.

Both reduce gradients at the end of a backward of the whole module. A pipeline runs many backwards, of parts of it and
in any order; so nothing is reduced until the last one of a step is done, and then everything once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from octoplan_runtime.forward import RandomState
from octoplan_runtime.stage_module import StageModule, Values
from octoplan_schemas import InputError

#: Takes a stage's module and returns what is called in its place, or the same module after changing it.
Wrap = Callable[[StageModule], nn.Module]


class Replica:
    """A stage of one rank alone, or whose gradients the caller averages.

    Parameters
    ----------
    inner:
        The stage's module.
    outer:
        What is called in its place.
    """

    def __init__(self, inner: StageModule, outer: nn.Module) -> None:
        self.inner = inner
        self.outer = outer

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the stage's parameters."""
        return self.inner.parameters()

    def forward(self, received: Mapping[int, Values], randomness: RandomState | None) -> dict[int, Values]:
        """Run the stage on a microbatch, in training or not."""
        outputs: dict[int, Values] = self.outer(received, randomness)
        return outputs

    def _roots(self) -> list[torch.Tensor]:
        """Return a view of every trained parameter."""
        return [parameter.view_as(parameter) for parameter in self.parameters() if parameter.requires_grad]

    def _add_zero(self, roots: Sequence[torch.Tensor]) -> None:
        """Run a backward in which every trained parameter gets a gradient of zero."""
        torch.autograd.backward(list(roots), [root.new_zeros(()).expand_as(root) for root in roots])

    def begin(self) -> None:
        """Begin a training step."""

    def reduce(self) -> None:
        """End a training step: reduce its gradients over the replicas."""


class DdpReplica(Replica):
    """A stage inside `DistributedDataParallel`."""

    def __init__(self, inner: StageModule, outer: DistributedDataParallel) -> None:
        super().__init__(inner, outer)
        self._ddp = outer
        if outer.static_graph:
            raise InputError(
                "wrap: DistributedDataParallel with static_graph needs a backward of the whole module"
            )

    def forward(self, received: Mapping[int, Values], randomness: RandomState | None) -> dict[int, Values]:
        """Run the stage; no backward of it reduces anything."""
        if not torch.is_grad_enabled():
            outputs: dict[int, Values] = self.inner(received, randomness)
            return outputs
        with self._ddp.no_sync():
            return super().forward(received, randomness)

    def begin(self) -> None:
        """Let the step's first forward copy buffers from the first replica; DDP does so in every forward."""
        self._ddp.require_forward_param_sync = True

    def reduce(self) -> None:
        """Add zero to every gradient: DDP takes this for its backward and reduces what it has been added to."""
        roots = self._roots()
        # As torch's own pipeline stages prepare it; there is no public way.
        self._ddp.reducer.prepare_for_backward(roots)
        self._add_zero(roots)


class FsdpReplica(Replica):
    """A stage that `fully_shard` has been applied to; its parameters stay whole from the first forward to the end."""

    def begin(self) -> None:
        """Gather parameters in the first forward, and keep them and whole gradients until `reduce`."""
        self._set_last(False)
        self.outer.set_reshard_after_forward(False)  # type: ignore[operator]

    def reduce(self) -> None:
        """Scatter the sums of gradients, and let go of what is whole."""
        # A weight that only some replicas have used must have a gradient on all of them.
        self._add_zero(self._roots())
        self._set_last(True)
        # What autograd would call at the end of a backward of the whole module; there is no public way, and torch's
        # own pipeline stages do the same.
        from torch.distributed.fsdp import fully_shard

        fully_shard.state(self.outer)._root_post_backward_final_callback()  # type: ignore[attr-defined]

    def _set_last(self, is_last: bool) -> None:
        for name in ("is_last_backward", "reshard_after_backward", "requires_gradient_sync"):
            getattr(self.outer, f"set_{name}")(is_last)


def replica_of(stage: StageModule, wrap: Wrap | None) -> Replica:
    """Wrap a stage.

    Raises
    ------
    InputError
        If it is wrapped in a way that a pipeline cannot drive.
    """
    outer = stage if wrap is None else wrap(stage)
    if not isinstance(outer, nn.Module):
        raise InputError(f"wrap: must return a module, not {type(outer).__name__}")
    if isinstance(outer, DistributedDataParallel):
        return DdpReplica(stage, outer)
    if is_sharded(stage):
        return FsdpReplica(stage, outer)
    if any(is_sharded(module) for module in stage.modules()):
        raise InputError("wrap: fully_shard must be applied to the stage too, after its layers")
    return Replica(stage, outer)


def load_whole(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a state dict; of a whole tensor each rank takes its shard where the module is sharded."""
    own = module.state_dict()
    shards = {name: _shard_like(own[name], value) for name, value in state.items()}
    module.load_state_dict(shards)


def _shard_like(own: Any, value: Any) -> Any:
    placements = getattr(own, "placements", None)  # of a DTensor
    if placements is None or hasattr(value, "placements"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, own.device_mesh, placements)


def is_sharded(module: nn.Module) -> bool:
    """Return whether `fully_shard` has been applied to a module."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # loaded by whoever has applied it
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)
