"""Losses that arise inside the model, such as the load balance of a mixture of experts.

A layer calls `add_loss` in its forward. The value, averaged over microbatches, becomes part of the step's loss, and
its gradient flows on the rank where it arose: nothing of it travels between stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_collected: ContextVar[list[torch.Tensor] | None] = ContextVar("octoplan_losses", default=None)


def add_loss(loss: torch.Tensor) -> None:
    """Add a scalar to the loss of the microbatch whose forward is running; elsewhere it is ignored.

    Evaluation and the run that finds out shapes have no loss. A recomputation (activation checkpointing) calls this
    again and is not counted twice.
    """
    losses = _collected.get()
    if losses is not None:
        losses.append(loss)


@contextmanager
def collected_losses() -> Iterator[list[torch.Tensor]]:
    """Collect what `add_loss` is given meanwhile; for loops that run the same layers without an executor."""
    losses: list[torch.Tensor] = []
    token = _collected.set(losses)
    try:
        yield losses
    finally:
        _collected.reset(token)
