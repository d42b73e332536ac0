"""Bodies in which every layer is one mixer, given as a pattern string or a list of layer types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octoplan.cost_model import ArchitectureLayer, Part
from octoplan.cost_model.parts import Attention, Mamba2
from octoplan.importers.config_fields import MAXIMUM_LAYERS, ConfigFields
from octoplan.importers.huggingface.common import attention_heads, head_size

#: Characters of ``hybrid_override_pattern``; experts are written E by Nemotron-H and # by others.
PATTERN_KINDS = {"M": "mamba2", "-": "mlp", "*": "attention", "E": "moe", "#": "moe"}

#: Entries of ``layers_block_type``, old names and new.
_TYPE_KINDS = {
    "mamba": "mamba2",
    "mamba2": "mamba2",
    "linear_attention": "mamba2",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}

#: How to read the part of each kind.
Builders = Mapping[str, Callable[[], Part]]

_LIST_NAMES = ("layers_block_type", "layer_types")


def layer_kinds(fields: ConfigFields) -> list[str]:
    """Return the kind of every layer; pattern or list must agree with ``num_hidden_layers`` if given."""
    if fields.has("hybrid_override_pattern"):
        name, entries = "hybrid_override_pattern", list(fields.text("hybrid_override_pattern"))
        known = PATTERN_KINDS
    else:
        name = next((name for name in _LIST_NAMES if fields.has(name)), "hybrid_override_pattern")
        if name not in _LIST_NAMES:
            fields.refuse(name, f"missing (or {_LIST_NAMES[0]})")
        entries, known = fields.texts(name), _TYPE_KINDS
    number = fields.count("num_hidden_layers", default=len(entries), maximum=MAXIMUM_LAYERS)
    if len(entries) != number:
        fields.refuse(name, f"has {len(entries)} entries for num_hidden_layers {number}")
    for index, entry in enumerate(entries):
        if entry not in known:
            fields.refuse(name, f"entry {index} must be one of {' '.join(known)}, not {entry[:20]!r}")
    return [known[entry] for entry in entries]


def mixer_layers(kinds: list[str], build: Builders) -> list[ArchitectureLayer]:
    """Return one layer per kind; a kind's fields are read only if it occurs."""
    parts = {kind: build[kind]() for kind in dict.fromkeys(kinds)}
    return [ArchitectureLayer(f"layers.{index}", kind, (parts[kind],)) for index, kind in enumerate(kinds)]


def plain_attention(fields: ConfigFields) -> Attention:
    """Return attention without positions: the state-space layers know them."""
    heads, kv_heads = attention_heads(fields)
    return Attention(
        fields.count("hidden_size"),
        heads,
        kv_heads,
        head_size(fields, "head_dim", "attention_head_dim"),
        bias=fields.flag("attention_bias", default=False),
        rotary=False,
    )


def mamba2(fields: ConfigFields) -> Mamba2:
    """Return the Mamba-2 mixer."""
    heads, groups = fields.count("mamba_num_heads"), fields.count("n_groups", "mamba_n_groups")
    if heads % groups:
        fields.refuse("n_groups", f"{groups} must divide mamba_num_heads {heads}")
    return Mamba2(
        fields.count("hidden_size"),
        heads,
        fields.count("mamba_head_dim"),
        groups,
        fields.count("ssm_state_size"),
        kernel=fields.count("conv_kernel", "mamba_d_conv", default=4),
        chunk_size=fields.count("chunk_size", "mamba_chunk_size", default=256),
        bias=fields.flag("use_bias", default=False),
        conv_bias=fields.flag("use_conv_bias", "mamba_conv_bias", default=True),
    )
