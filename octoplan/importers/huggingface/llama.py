"""Llama 2 and 3: the same block throughout."""

from __future__ import annotations

from octoplan.cost_model import Architecture
from octoplan.cost_model.parts import Attention, FeedForward
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.huggingface.common import Block, assemble, attention_heads, cut, head_size, num_layers
from octoplan.importers.options import Granularity


def read_llama(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` llama."""
    hidden = fields.count("hidden_size")
    heads, kv_heads = attention_heads(fields)
    bias = fields.flag("attention_bias", default=False)
    block = Block(
        Attention(hidden, heads, kv_heads, head_size(fields, "head_dim"), bias=bias),
        FeedForward(hidden, fields.count("intermediate_size"), bias=fields.flag("mlp_bias", default=False)),
    )
    return assemble(fields, name, cut([block] * num_layers(fields), granularity), tie_default=False)
