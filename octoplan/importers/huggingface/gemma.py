"""Gemma 2 and 3: local and global attention in turn, four norms a block, a large tied vocabulary.

Gemma 3 files nest the language model in ``text_config`` and leave out what equals the defaults of its
class; those are filled in. Its vision tower is not part of the graph.
"""

from __future__ import annotations

from dataclasses import replace

from octoplan.cost_model import Architecture
from octoplan.cost_model.parts import Attention, FeedForward
from octoplan.importers.config_fields import ConfigFields
from octoplan.importers.huggingface.common import Block, assemble, attention_heads, cut, num_layers
from octoplan.importers.options import Granularity

#: What ``Gemma3TextConfig`` of transformers takes where the file says nothing.
_GEMMA3_DEFAULTS = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
}


def read_gemma2(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` gemma2: every other layer is local, from the first one on."""
    body = cut(_blocks(fields, pattern=2, qk_norm=False), granularity)
    softcap = fields.has("final_logit_softcapping")
    return assemble(fields, name, body, tie_default=True, softcap=softcap)


def read_gemma3(fields: ConfigFields, name: str, granularity: Granularity) -> Architecture:
    """Read a config of ``model_type`` gemma3 (nested) or gemma3_text: one layer in six is global."""
    nested = "text_config" in fields.values
    given = fields.section("text_config") if nested else fields
    present = {key: value for key, value in given.values.items() if value is not None}
    text = replace(given, values={**_GEMMA3_DEFAULTS, **present})
    pattern = text.count("sliding_window_pattern", default=6)
    body = cut(_blocks(text, pattern=pattern, qk_norm=True), granularity)
    softcap = text.has("final_logit_softcapping")
    return assemble(text, name, body, tie_default=True, softcap=softcap, top=fields if nested else None)


def _blocks(fields: ConfigFields, *, pattern: int, qk_norm: bool) -> list[Block]:
    hidden = fields.count("hidden_size")
    heads, kv_heads = attention_heads(fields)
    window = fields.count("sliding_window", default=4096)
    attention = Attention(
        hidden,
        heads,
        kv_heads,
        fields.count("head_dim"),
        bias=fields.flag("attention_bias", default=False),
        qk_norm=qk_norm,
        post_norm=True,
    )
    feed_forward = FeedForward(hidden, fields.count("intermediate_size"), post_norm=True)
    everywhere, near = Block(attention, feed_forward), Block(replace(attention, window=window), feed_forward)
    return [near if is_local else everywhere for is_local in _local_layers(fields, pattern)]


def _local_layers(fields: ConfigFields, pattern: int) -> list[bool]:
    """Return for every layer whether its attention is local."""
    number = num_layers(fields)
    if not fields.has("layer_types"):
        return [(index + 1) % pattern != 0 for index in range(number)]
    types = fields.texts("layer_types")
    if len(types) != number:
        fields.refuse("layer_types", f"has {len(types)} entries for num_hidden_layers {number}")
    for index, entry in enumerate(types):
        if entry not in ("sliding_attention", "full_attention"):
            fields.refuse(
                f"layer_types.{index}", f"must be sliding_attention or full_attention, not {entry!r}"
            )
    return [entry == "sliding_attention" for entry in types]
