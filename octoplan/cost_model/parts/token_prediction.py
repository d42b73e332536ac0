"""What a multi-token-prediction layer (DeepSeek-V3) adds around its transformer block.

It joins the hidden state with the embedding of the next token (two norms, one product of 2h by h), runs one
block and normalises the result for the shared head. It hands on the hidden states that it received as
well, since the head needs them for the other losses.
"""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.workload import Workload


@dataclass(frozen=True, slots=True)
class TokenPredictionInput:
    """Norms of hidden state and embedding, and the product that joins them."""

    hidden_size: int

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order; every rank does all of it."""
        hidden = self.hidden_size
        return (
            rms_norm("hidden_norm", workload, hidden),
            rms_norm("embedding_norm", workload, hidden),
            linear("join", workload, 2 * hidden, hidden),
        )


@dataclass(frozen=True, slots=True)
class FinalNorm:
    """The norm before the shared head."""

    hidden_size: int

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        return (rms_norm("final_norm", workload, self.hidden_size),)
