"""A batch as microbatches: equal cuts along dimension 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from octoplan_schemas import InputError

#: One tensor or several; dimension 0 is the batch.
Batch = torch.Tensor | tuple[torch.Tensor, ...]

#: What a microbatch counts in the step's loss, given its targets; for example its number of tokens.
MicrobatchWeight = Callable[[Any], float]


def loss_shares(targets: Sequence[Any], weight: MicrobatchWeight | None) -> list[float]:
    """Return each microbatch's share of the step's loss: equal, or by weight.

    Raises
    ------
    InputError
        If a weight is negative or all are zero.
    """
    if weight is None:
        return [1.0 / len(targets)] * len(targets)
    weights = [float(weight(target)) for target in targets]
    if min(weights) < 0 or not sum(weights) > 0:
        raise InputError(f"microbatch_weight gave {weights}; weights must be at least 0, and one above 0")
    return [one / sum(weights) for one in weights]


def split_batch(batch: Batch | None, num_microbatches: int, name: str) -> list[Any]:
    """Cut a batch into equal microbatches; a tuple is cut tensor by tensor.

    Raises
    ------
    InputError
        If there is no batch, or its size is no multiple of the number of microbatches.
    """
    if batch is None:
        raise InputError(f"step() and eval() need {name} on this rank")
    if isinstance(batch, tuple):
        parts = [split_batch(tensor, num_microbatches, name) for tensor in batch]
        return list(zip(*parts, strict=True))
    size = batch.shape[0] if batch.dim() else 0
    if size == 0 or size % num_microbatches:
        raise InputError(
            f"{name}: {size} samples cannot be cut into {num_microbatches} equal microbatches; make the "
            f"batch size a multiple of {num_microbatches}"
        )
    return list(batch.chunk(num_microbatches))


def join_values(microbatches: Sequence[tuple[torch.Tensor, ...]]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Join the outputs of microbatches, in order, along dimension 0; a single tensor stands alone."""
    joined = tuple(torch.cat(tensors) for tensors in zip(*microbatches, strict=True))
    return joined[0] if len(joined) == 1 else joined
