"""Jamba in its two forms.

Released configs: decoder layers of a Mamba-1 or attention mixer and a feed-forward or experts, given by
``attn_layer_period`` and ``expert_layer_period``. Research configs: single mixers (Mamba-2) in
``hybrid_override_pattern`` or in a ``layers_block_type`` list that names feed-forward layers as well.
"""

from __future__ import annotations

from octoplan.cost_model import Architecture
from octoplan.cost_model.parts import Experts, FeedForward, Mamba
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.huggingface.common import Block, assemble, cut, num_layers, top_k
from octoplan.importers.huggingface.hybrid import Builders, layer_kinds, mamba2, mixer_layers, plain_attention
from octoplan.importers.options import Granularity

_MIXERS = {"mamba": True, "linear_attention": True, "attention": False, "full_attention": False}


def read_jamba(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` jamba, or of class JambaForCausalLM without one."""
    if fields.has("hybrid_override_pattern") or _lists_feed_forward(fields):
        build: Builders = {
            "mamba2": lambda: mamba2(fields),
            "attention": lambda: plain_attention(fields),
            "mlp": lambda: _feed_forward(fields),
            "moe": lambda: _experts(fields),
        }
        body = mixer_layers(layer_kinds(fields), build)
    else:
        body = list(cut(_blocks(fields), granularity))
    return assemble(fields, name, body, tie_default=False)


def _blocks(fields: ConfigFields) -> list[Block]:
    is_mamba, is_sparse = _mamba_layers(fields), _sparse_layers(fields)
    mixers = {kind: _mamba(fields) if kind else plain_attention(fields) for kind in set(is_mamba)}
    feed_forwards = {kind: _experts(fields) if kind else _feed_forward(fields) for kind in set(is_sparse)}
    return [
        Block(mixers[mixer], feed_forwards[sparse]) for mixer, sparse in zip(is_mamba, is_sparse, strict=True)
    ]


def _lists_feed_forward(fields: ConfigFields) -> bool:
    return fields.has("layers_block_type") and bool({"mlp", "moe"} & set(fields.texts("layers_block_type")))


def _mamba_layers(fields: ConfigFields) -> list[bool]:
    """Return for every decoder layer whether its mixer is a state-space one."""
    number = num_layers(fields)
    if not fields.has("layers_block_type"):
        period, offset = _period(fields, "attn_layer", 8, 4)
        return [index % period != offset for index in range(number)]
    types = fields.texts("layers_block_type")
    if len(types) != number:
        fields.refuse("layers_block_type", f"has {len(types)} entries for num_hidden_layers {number}")
    for index, entry in enumerate(types):
        if entry not in _MIXERS:
            fields.refuse(f"layers_block_type.{index}", f"must be one of {', '.join(_MIXERS)}, not {entry!r}")
    return [_MIXERS[entry] for entry in types]


def _sparse_layers(fields: ConfigFields) -> list[bool]:
    period, offset = _period(fields, "expert_layer", 2, 1)
    any_experts = fields.count("num_experts", "num_local_experts", default=16) > 1
    return [any_experts and index % period == offset for index in range(num_layers(fields))]


def _period(fields: ConfigFields, name: str, period_default: int, offset_default: int) -> tuple[int, int]:
    """Return period and offset; the defaults are those of transformers."""
    period = fields.count(f"{name}_period", default=period_default)
    offset = fields.count(f"{name}_offset", default=offset_default, minimum=0)
    if offset >= period:
        fields.refuse(f"{name}_offset", f"{offset} must be smaller than {name}_period {period}")
    return period, offset


def _mamba(fields: ConfigFields) -> Mamba:
    hidden = fields.count("hidden_size")
    rank = -(-hidden // 16)
    if fields.values.get("mamba_dt_rank", "auto") != "auto":
        rank = fields.count("mamba_dt_rank", default=rank)
    return Mamba(
        hidden,
        hidden * fields.count("mamba_expand", default=2),
        fields.count("mamba_d_state", default=16),
        rank,
        kernel=fields.count("mamba_d_conv", default=4),
        bias=fields.flag("mamba_proj_bias", default=False),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
    )


def _feed_forward(fields: ConfigFields) -> FeedForward:
    return FeedForward(fields.count("hidden_size"), fields.count("intermediate_size"))


def _experts(fields: ConfigFields) -> Experts:
    num_experts = fields.count("num_experts", "num_local_experts", default=16)
    size = fields.count("moe_ffn_hidden_size", "moe_intermediate_size", "intermediate_size")
    visited = top_k(fields, num_experts, "num_experts_per_tok", "moe_router_topk")
    return Experts(fields.count("hidden_size"), size, num_experts, visited)
