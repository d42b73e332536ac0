"""Multi-head latent attention (DeepSeek-V2 and V3): low-rank queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import copy, residual_sum, rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.sequence import attention_scores
from octoplan.cost_model.workload import BF16_BYTES, Workload


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Norm, down and up projections, scores, output projection and residual sum.

    Parameters
    ----------
    q_rank:
        Rank of the query projection; None: a full one.
    kv_rank:
        Rank of the joint key and value projection.
    nope_dim, rope_dim, v_dim:
        Sizes of a head: key part without positions, with positions (shared by all heads), value.
    bias:
        The down and the output projections have biases.
    """

    hidden_size: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    bias: bool = False

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order; the low-rank parts are whole on every rank."""
        hidden, qk_dim = self.hidden_size, self.nope_dim + self.rope_dim
        heads = workload.share(self.heads, "num_attention_heads")
        rotated = BF16_BYTES * workload.tokens * (heads + 1) * self.rope_dim
        kv_up = heads * (self.nope_dim + self.v_dim)
        return (
            rms_norm("input_norm", workload, hidden),
            *self._queries(workload, heads * qk_dim),
            # The input is the one that the query projection has saved.
            linear(
                "kv_down", workload, hidden, self.kv_rank + self.rope_dim, bias=self.bias, saves_input=False
            ),
            rms_norm("kv_norm", workload, self.kv_rank),
            linear("kv_up", workload, self.kv_rank, kv_up, shard="column"),
            copy("rotary", rotated, rotated),
            attention_scores(
                workload, heads=heads, kv_heads=heads, qk_dim=qk_dim, v_dim=self.v_dim, window=None
            ),
            linear("output", workload, heads * self.v_dim, hidden, bias=self.bias, shard="row"),
            residual_sum(workload, hidden),
        )

    def _queries(self, workload: Workload, width: int) -> tuple[Operator, ...]:
        if self.q_rank is None:
            return (linear("queries", workload, self.hidden_size, width, shard="column"),)
        return (
            linear("q_down", workload, self.hidden_size, self.q_rank, bias=self.bias),
            rms_norm("q_norm", workload, self.q_rank),
            linear("q_up", workload, self.q_rank, width, shard="column"),
        )
