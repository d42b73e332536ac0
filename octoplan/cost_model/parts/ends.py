"""The first and the last layer: embedding, and final norm with output projection and loss."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.vocabulary import cross_entropy, embedding_lookup
from octoplan.cost_model.workload import Workload


@dataclass(frozen=True, slots=True)
class Embedding:
    """Token embedding, sharded over the vocabulary."""

    hidden_size: int
    vocabulary: int

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        return (embedding_lookup(workload, workload.share_padded(self.vocabulary), self.hidden_size),)


@dataclass(frozen=True, slots=True)
class Head:
    """Final norm, output projection and cross-entropy, sharded over the vocabulary.

    Parameters
    ----------
    streams:
        How many hidden states a token brings: one, and one more for each token-prediction layer; the
        further ones come normalised.
    softcap:
        Logits go through a scaled tanh (Gemma 2).
    """

    hidden_size: int
    vocabulary: int
    streams: int = 1
    softcap: bool = False

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        tokens, width = workload.tokens * self.streams, workload.share_padded(self.vocabulary)
        return (
            rms_norm("final_norm", workload, self.hidden_size),
            linear("logits", workload, self.hidden_size, width, shard="column", tokens=tokens),
            cross_entropy(workload, width, tokens=tokens, softcap=self.softcap),
        )
