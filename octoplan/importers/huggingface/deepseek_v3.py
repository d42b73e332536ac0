"""DeepSeek-V3: latent attention, a few dense layers, then experts; multi-token prediction.

transformers drops the prediction layers, the raw JSON has them (``num_nextn_predict_layers``): layers of
kind ``mtp`` after the body. Each needs the embedding's output (of the next tokens, which the embedding's
sequence holds) besides the hidden state: a skip edge. It hands on its own hidden state along with those
it received, because one head computes all losses.
"""

from __future__ import annotations

from octoplan.cost_model import Architecture, ArchitectureLayer
from octoplan.cost_model.parts import Experts, FeedForward, FinalNorm, LatentAttention, TokenPredictionInput
from octoplan.importers.config_fields import MAXIMUM_LAYERS, ConfigFields
from octoplan.importers.huggingface.common import Block, assemble, cut, num_layers, top_k
from octoplan.importers.options import Granularity


def read_deepseek_v3(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` deepseek_v3."""
    attention = _attention(fields)
    dense = Block(attention, FeedForward(fields.count("hidden_size"), fields.count("intermediate_size")))
    sparse = Block(attention, _experts(fields))
    first = fields.count("first_k_dense_replace", default=0, minimum=0)
    frequency = fields.count("moe_layer_freq", default=1)
    is_sparse = [index >= first and index % frequency == 0 for index in range(num_layers(fields))]
    body = cut([sparse if has_experts else dense for has_experts in is_sparse], granularity)
    return assemble(fields, name, body, tie_default=False, prediction=_prediction(fields, sparse))


def _attention(fields: ConfigFields) -> LatentAttention:
    return LatentAttention(
        hidden_size=fields.count("hidden_size"),
        heads=fields.count("num_attention_heads"),
        q_rank=fields.optional_count("q_lora_rank"),
        kv_rank=fields.count("kv_lora_rank"),
        nope_dim=fields.count("qk_nope_head_dim"),
        rope_dim=fields.count("qk_rope_head_dim"),
        v_dim=fields.count("v_head_dim"),
        bias=fields.flag("attention_bias", default=False),
    )


def _experts(fields: ConfigFields) -> Experts:
    num_experts, size = fields.count("n_routed_experts"), fields.count("moe_intermediate_size")
    return Experts(
        fields.count("hidden_size"),
        size,
        num_experts,
        top_k(fields, num_experts, "num_experts_per_tok"),
        shared_size=size * fields.count("n_shared_experts", default=0, minimum=0),
    )


def _prediction(fields: ConfigFields, block: Block) -> tuple[ArchitectureLayer, ...]:
    hidden = fields.count("hidden_size")
    parts = (TokenPredictionInput(hidden), block.mixer, block.feed_forward, FinalNorm(hidden))
    number = fields.count(
        "num_nextn_predict_layers", "num_mtp_layers", default=0, minimum=0, maximum=MAXIMUM_LAYERS
    )
    return tuple(
        ArchitectureLayer(f"mtp.{index}", "mtp", parts, output_streams=index + 2) for index in range(number)
    )
