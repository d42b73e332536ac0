"""Qwen3-MoE: normalised queries and keys, experts in every ``decoder_sparse_step``-th layer."""

from __future__ import annotations

from octoplan.cost_model import Architecture
from octoplan.cost_model.parts import Attention, Experts, FeedForward
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.huggingface.common import (
    Block,
    assemble,
    attention_heads,
    cut,
    head_size,
    num_layers,
    top_k,
)
from octoplan.importers.options import Granularity


def read_qwen3_moe(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` qwen3_moe."""
    hidden = fields.count("hidden_size")
    heads, kv_heads = attention_heads(fields)
    attention = Attention(
        hidden,
        heads,
        kv_heads,
        head_size(fields, "head_dim"),
        window=fields.count("sliding_window") if fields.flag("use_sliding_window", default=False) else None,
        bias=fields.flag("attention_bias", default=False),
        qk_norm=True,
    )
    blocks = {
        is_sparse: Block(attention, _feed_forward(fields, is_sparse)) for is_sparse in set(_sparse(fields))
    }
    body = [blocks[is_sparse] for is_sparse in _sparse(fields)]
    return assemble(fields, name, cut(body, granularity), tie_default=False)


def _sparse(fields: ConfigFields) -> list[bool]:
    """Return for every layer whether it has experts."""
    step, dense = fields.count("decoder_sparse_step", default=1), fields.indices("mlp_only_layers")
    any_experts = fields.count("num_experts", minimum=0) > 0
    return [
        any_experts and index not in dense and (index + 1) % step == 0 for index in range(num_layers(fields))
    ]


def _feed_forward(fields: ConfigFields, is_sparse: bool) -> FeedForward | Experts:
    hidden = fields.count("hidden_size")
    if not is_sparse:
        return FeedForward(hidden, fields.count("intermediate_size"))
    num_experts = fields.count("num_experts")
    visited = top_k(fields, num_experts, "num_experts_per_tok")
    return Experts(hidden, fields.count("moe_intermediate_size"), num_experts, visited)
