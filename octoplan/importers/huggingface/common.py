"""What the readers share: decoder layers cut by granularity, the two ends, attention heads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from octoplan.cost_model import Architecture, ArchitectureLayer, Part
from octoplan.cost_model.parts import Attention, Embedding, Experts, FeedForward, Head, LatentAttention, Mamba
from octoplan.importers.config_fields import MAXIMUM_LAYERS, ConfigFields
from octoplan.importers.options import Granularity

EMBEDDING, HEAD = "embedding", "lm_head"

_KINDS: dict[type[Part], str] = {
    Attention: "attention",
    LatentAttention: "attention",
    FeedForward: "mlp",
    Experts: "moe",
    Mamba: "mamba",
}


@dataclass(frozen=True, slots=True)
class Block:
    """A decoder layer: something that mixes tokens, then something that does not."""

    mixer: Part
    feed_forward: FeedForward | Experts

    @property
    def kind(self) -> str:
        """Return the kind of the uncut block."""
        name = "mamba" if isinstance(self.mixer, Mamba) else "transformer"
        if isinstance(self.feed_forward, Experts):
            return f"{name}_moe"
        return f"{name}_mlp" if name == "mamba" else name

    def layers(self, index: int, granularity: Granularity) -> tuple[ArchitectureLayer, ...]:
        """Return the block as one layer or as two."""
        name = f"layers.{index}"
        if granularity == "block":
            return (ArchitectureLayer(name, self.kind, (self.mixer, self.feed_forward)),)
        mixer, feed_forward = _kind(self.mixer), _kind(self.feed_forward)
        suffix = "attention" if mixer == "local_attention" else mixer
        return (
            ArchitectureLayer(f"{name}.{suffix}", mixer, (self.mixer,)),
            ArchitectureLayer(f"{name}.{feed_forward}", feed_forward, (self.feed_forward,)),
        )


def assemble(
    fields: ConfigFields,
    name: str,
    body: Iterable[ArchitectureLayer],
    *,
    tie_default: bool,
    softcap: bool = False,
    prediction: tuple[ArchitectureLayer, ...] = (),
    top: ConfigFields | None = None,
) -> Architecture:
    """Put the ends around the body.

    Parameters
    ----------
    tie_default:
        What a missing ``tie_word_embeddings`` means.
    prediction:
        Multi-token-prediction layers: after the body, each fed by the embedding as well.
    top:
        The outer object, where the model's own fields are nested in one.
    """
    hidden, vocabulary = fields.count("hidden_size"), fields.count("vocab_size")
    tied = fields.flag("tie_word_embeddings", default=tie_default)
    if top is not None and not fields.has("tie_word_embeddings"):
        tied = top.flag("tie_word_embeddings", default=tie_default)
    head = Head(hidden, vocabulary, streams=1 + len(prediction), softcap=softcap)
    return Architecture(
        name,
        hidden,
        (
            ArchitectureLayer(EMBEDDING, EMBEDDING, (Embedding(hidden, vocabulary),)),
            *body,
            *prediction,
            ArchitectureLayer(HEAD, HEAD, (head,), output_streams=0),
        ),
        tied=((EMBEDDING, HEAD),) if tied else (),
        tied_parameters=hidden * vocabulary if tied else 0,
        skips=tuple((EMBEDDING, layer.name) for layer in prediction),
    )


def cut(blocks: Iterable[Block], granularity: Granularity) -> tuple[ArchitectureLayer, ...]:
    """Return the layers of a body made of blocks."""
    return tuple(layer for index, block in enumerate(blocks) for layer in block.layers(index, granularity))


def num_layers(fields: ConfigFields) -> int:
    """Return ``num_hidden_layers``."""
    return fields.count("num_hidden_layers", maximum=MAXIMUM_LAYERS)


def attention_heads(fields: ConfigFields, *, kv_default: int | None = None) -> tuple[int, int]:
    """Return the numbers of query heads and of key-value heads (as many, unless given)."""
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=kv_default or heads)
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", f"{kv_heads} must divide num_attention_heads {heads}")
    return heads, kv_heads


def head_size(fields: ConfigFields, *names: str) -> int:
    """Return the size of an attention head; by default the hidden size over the heads."""
    if fields.has(*names):
        return fields.count(*names)
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if hidden % heads:
        fields.refuse("num_attention_heads", f"{heads} must divide hidden_size {hidden} (or give {names[0]})")
    return hidden // heads


def top_k(fields: ConfigFields, num_experts: int, *names: str) -> int:
    """Return how many experts a token visits."""
    return fields.count(*names, maximum=num_experts)


def _kind(part: Part) -> str:
    if isinstance(part, Attention) and part.window is not None:
        return "local_attention"
    return _KINDS[type(part)]
