"""What every miniature layer begins with: skip tensors added, then root-mean-square normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class RMSNorm(nn.Module):
    """Divide by the root of the mean square of the last dimension, then scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Keep the shape."""
        return hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def add_skips(hidden: torch.Tensor, skips: Sequence[torch.Tensor]) -> torch.Tensor:
    """Add the tensors of skip edges to the hidden state."""
    for skip in skips:
        hidden = hidden + skip
    return hidden
