"""Multi-head attention with grouped key-value heads."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import copy, residual_sum, rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.sequence import attention_scores
from octoplan.cost_model.workload import BF16_BYTES, Workload


@dataclass(frozen=True, slots=True)
class Attention:
    """Norm, projections, scores, output projection and residual sum.

    Parameters
    ----------
    hidden_size, heads, kv_heads, head_dim:
        Widths.
    window:
        Tokens that a query sees, itself among them; None: all before it.
    bias:
        The four projections have biases.
    qk_norm:
        Queries and keys are normalised per head, with one scale for all heads.
    post_norm:
        A second norm follows the output projection (Gemma).
    rotary:
        Positions are rotated into queries and keys.
    """

    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    bias: bool = False
    qk_norm: bool = False
    post_norm: bool = False
    rotary: bool = True

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        hidden, dim = self.hidden_size, self.head_dim
        heads = workload.share(self.heads, "num_attention_heads")
        kv_heads = workload.share_or_copy(self.kv_heads, "num_key_value_heads")
        result = [
            rms_norm("input_norm", workload, hidden),
            linear("qkv", workload, hidden, (heads + 2 * kv_heads) * dim, bias=self.bias, shard="column"),
        ]
        if self.qk_norm:
            result.append(rms_norm("qk_norm", workload, (heads + kv_heads) * dim, parameters=2 * dim))
        if self.rotary:
            rotated = BF16_BYTES * workload.tokens * (heads + kv_heads) * dim
            result.append(copy("rotary", rotated, rotated))
        result += [
            attention_scores(
                workload, heads=heads, kv_heads=kv_heads, qk_dim=dim, v_dim=dim, window=self.window
            ),
            linear("output", workload, heads * dim, hidden, bias=self.bias, shard="row"),
        ]
        if self.post_norm:
            result.append(rms_norm("post_norm", workload, hidden))
        return (*result, residual_sum(workload, hidden))
