"""Nemotron-H: Mamba-2, a few attention layers, squared-ReLU feed-forward without gate, or experts."""

from __future__ import annotations

from octoplan.cost_model import Architecture
from octoplan.cost_model.parts import Experts, FeedForward
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.huggingface.common import assemble, top_k
from octoplan.importers.huggingface.hybrid import Builders, layer_kinds, mamba2, mixer_layers, plain_attention
from octoplan.importers.options import Granularity


def read_nemotron_h(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` nemotron_h; its layers are single mixers at either granularity."""
    del granularity
    if fields.count("num_nextn_predict_layers", default=0, minimum=0):
        fields.refuse(
            "num_nextn_predict_layers", "token prediction of nemotron_h is not supported; set it to 0"
        )
    build: Builders = {
        "mamba2": lambda: mamba2(fields),
        "attention": lambda: plain_attention(fields),
        "mlp": lambda: _feed_forward(fields),
        "moe": lambda: _experts(fields),
    }
    return assemble(fields, name, mixer_layers(layer_kinds(fields), build), tie_default=False)


def _feed_forward(fields: ConfigFields) -> FeedForward:
    hidden, size = fields.count("hidden_size"), fields.count("intermediate_size")
    return FeedForward(hidden, size, gated=False, bias=fields.flag("mlp_bias", default=False))


def _experts(fields: ConfigFields) -> Experts:
    num_experts = fields.count("n_routed_experts", "num_experts")
    return Experts(
        fields.count("hidden_size"),
        fields.count("moe_intermediate_size"),
        num_experts,
        top_k(fields, num_experts, "num_experts_per_tok", "moe_router_topk"),
        shared_size=fields.count("moe_shared_expert_intermediate_size", minimum=0),
        gated=False,
        bias=fields.flag("mlp_bias", default=False),
        latent_size=fields.optional_count("moe_latent_size"),
    )
