"""Causal self-attention with grouped queries."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from octoplan_runtime.miniature.norm import RMSNorm, add_skips


class Attention(nn.Module):
    """Pre-norm attention with a residual; several query heads share each key and value head."""

    def __init__(self, width: int, num_heads: int, num_key_heads: int) -> None:
        super().__init__()
        self.num_heads, self.num_key_heads, self.head_width = num_heads, num_key_heads, width // num_heads
        self.norm = RMSNorm(width)
        self.query = nn.Linear(width, num_heads * self.head_width, bias=False)
        self.key_value = nn.Linear(width, 2 * num_key_heads * self.head_width, bias=False)
        self.output = nn.Linear(num_heads * self.head_width, width, bias=False)

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Map (batch, sequence, width) to the same shape; skip tensors are added to the input."""
        hidden = add_skips(hidden, skips)
        batch, sequence, _ = hidden.shape
        normed = self.norm(hidden)
        query = self.query(normed).view(batch, sequence, self.num_heads, -1).transpose(1, 2)
        pair = self.key_value(normed).view(batch, sequence, 2 * self.num_key_heads, -1).transpose(1, 2)
        key, value = (
            half.repeat_interleave(self.num_heads // self.num_key_heads, dim=1)
            for half in pair.split(self.num_key_heads, dim=1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: torch.Tensor = self.output(mixed.transpose(1, 2).reshape(batch, sequence, -1))
        return hidden + joined
