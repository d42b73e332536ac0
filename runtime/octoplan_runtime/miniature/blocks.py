"""The first and last layer of a model, and blocks made of two layers."""

from __future__ import annotations

import torch
from torch import nn

from octoplan_runtime.miniature.norm import RMSNorm, add_skips


class Embedding(nn.Module):
    """Token ids (batch, sequence) to vectors (batch, sequence, width)."""

    def __init__(self, num_tokens: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(num_tokens, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Look up."""
        vectors: torch.Tensor = self.table(tokens)
        return vectors


class Head(nn.Module):
    """Norm and projection to logits (batch, sequence, num_tokens); the loss is computed from these."""

    def __init__(self, width: int, num_tokens: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.project = nn.Linear(width, num_tokens, bias=False)

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Skip tensors are added to the input."""
        logits: torch.Tensor = self.project(self.norm(add_skips(hidden, skips)))
        return logits


class Block(nn.Module):
    """A mixer over the sequence followed by one over the width, as one indivisible layer."""

    def __init__(self, sequence_mixer: nn.Module, width_mixer: nn.Module) -> None:
        super().__init__()
        self.sequence_mixer = sequence_mixer
        self.width_mixer = width_mixer

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Skip tensors are added to the input."""
        result: torch.Tensor = self.width_mixer(self.sequence_mixer(hidden, *skips))
        return result


class MultiTokenPrediction(nn.Module):
    """A block that predicts one token further: it joins the hidden state with an embedding (its skip
    input)."""

    def __init__(self, width: int, block: nn.Module) -> None:
        super().__init__()
        self.hidden_norm = RMSNorm(width)
        self.skip_norm = RMSNorm(width)
        self.join = nn.Linear(2 * width, width, bias=False)
        self.block = block

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Without a skip input the hidden state stands in for the embedding."""
        embedding = add_skips(skips[0], skips[1:]) if skips else hidden
        joined = torch.cat((self.hidden_norm(hidden), self.skip_norm(embedding)), dim=-1)
        result: torch.Tensor = self.block(hidden + self.join(joined))
        return result
