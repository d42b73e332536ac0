"""Gated MLP, and a mixture of such experts."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from octoplan_runtime.miniature.norm import RMSNorm, add_skips


class MLP(nn.Module):
    """Pre-norm gated MLP with a residual."""

    def __init__(self, width: int, hidden_width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.up = nn.Linear(width, 2 * hidden_width, bias=False)
        self.down = nn.Linear(hidden_width, width, bias=False)

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Map (batch, sequence, width) to the same shape; skip tensors are added to the input."""
        hidden = add_skips(hidden, skips)
        gate, up = self.up(self.norm(hidden)).chunk(2, dim=-1)
        result: torch.Tensor = self.down(F.silu(gate) * up)
        return hidden + result


class MixtureOfExperts(nn.Module):
    """Pre-norm mixture: each token goes to its best experts, weighted by the router's softmax over them.

    Every expert computes every token and the gates of the others are zero: the same result on every rank,
    with shapes that do not depend on the data.
    """

    def __init__(self, width: int, hidden_width: int, num_experts: int, num_active: int) -> None:
        super().__init__()
        self.num_active = num_active
        self.norm = RMSNorm(width)
        self.router = nn.Linear(width, num_experts, bias=False)
        self.up = nn.Parameter(torch.randn(num_experts, width, 2 * hidden_width) / width**0.5)
        self.down = nn.Parameter(torch.randn(num_experts, hidden_width, width) / hidden_width**0.5)

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Map (batch, sequence, width) to the same shape; skip tensors are added to the input."""
        hidden = add_skips(hidden, skips)
        normed = self.norm(hidden)
        best, experts = self.router(normed).topk(self.num_active, dim=-1)
        chosen = best.softmax(dim=-1)  # in float32 under autocast
        gates = chosen.new_zeros(*hidden.shape[:-1], len(self.up)).scatter(-1, experts, chosen)
        gate, up = torch.einsum("bsw,ewh->bseh", normed, self.up).chunk(2, dim=-1)
        mixed = torch.einsum("bseh,ehw->bsew", F.silu(gate) * up, self.down)
        result: torch.Tensor = hidden + (gates.unsqueeze(-1) * mixed).sum(dim=-2)
        return result
