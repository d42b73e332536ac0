"""A state-space layer in the manner of Mamba-2, computed in its quadratic (dual) form.

Dao and Gu, "Transformers are SSMs", 2024: with per-head decay a_t, input and output projections B_t and C_t
and inputs x_t, ``y_t = sum over s <= t of (C_t . B_s) a_{s+1} ... a_t x_s``. On a short sequence this is
one masked product, without a scan.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from octoplan_runtime.miniature.norm import RMSNorm, add_skips

_KERNEL = 4


class Mamba2(nn.Module):
    """Pre-norm state-space layer with a residual: short causal convolution, selective decay, gate."""

    def __init__(self, width: int, num_heads: int, state_width: int) -> None:
        super().__init__()
        self.num_heads, self.state_width = num_heads, state_width
        mixed_width = width + 2 * state_width
        self.norm = RMSNorm(width)
        self.input = nn.Linear(width, width + mixed_width + num_heads, bias=False)
        self.convolution = nn.Parameter(torch.randn(_KERNEL, mixed_width) / _KERNEL**0.5)
        self.step_bias = nn.Parameter(torch.zeros(num_heads))
        self.log_decay = nn.Parameter(torch.linspace(-1.0, 1.0, num_heads))
        self.direct = nn.Parameter(torch.ones(num_heads))
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Map (batch, sequence, width) to the same shape; skip tensors are added to the input."""
        hidden = add_skips(hidden, skips)
        batch, sequence, width = hidden.shape
        projected = self.input(self.norm(hidden))
        gate, mixed, step = torch.split(
            projected, [width, width + 2 * self.state_width, self.num_heads], dim=-1
        )
        values, keys, queries = torch.split(
            F.silu(self._convolve(mixed)), [width, self.state_width, self.state_width], dim=-1
        )
        step = F.softplus(step + self.step_bias)
        values = values.reshape(batch, sequence, self.num_heads, -1)
        result = self._scan(values * step.unsqueeze(-1), keys, queries, -step * self.log_decay.exp())
        result = result + self.direct.unsqueeze(-1) * values
        output: torch.Tensor = self.output(result.reshape(batch, sequence, width) * F.silu(gate))
        return hidden + output

    def _convolve(self, mixed: torch.Tensor) -> torch.Tensor:
        """Convolve every channel with the last few positions."""
        sequence = mixed.shape[1]
        padded = F.pad(mixed, (0, 0, _KERNEL - 1, 0))
        shifted = torch.stack([padded[:, offset : offset + sequence] for offset in range(_KERNEL)], dim=-2)
        return (shifted * self.convolution).sum(dim=-2)

    def _scan(
        self, values: torch.Tensor, keys: torch.Tensor, queries: torch.Tensor, log_decay: torch.Tensor
    ) -> torch.Tensor:
        """Sum over earlier positions; ``log_decay`` is (batch, sequence, heads), all others as in the
        module."""
        sequence = values.shape[1]
        past = torch.ones(sequence, sequence, dtype=torch.bool, device=values.device).tril(-1)
        # Sums over s < u <= t, each by itself: differences of one running sum would lose digits.
        each = log_decay.unsqueeze(2).expand(-1, -1, sequence, -1)
        between = each.masked_fill(~past[None, :, :, None], 0.0).cumsum(dim=1)
        decay = between.exp().masked_fill(past.T[None, :, :, None], 0.0)
        scores = torch.einsum("btn,bsn->bts", queries, keys)
        return torch.einsum("bts,btsh,bshv->bthv", scores, decay, values)
