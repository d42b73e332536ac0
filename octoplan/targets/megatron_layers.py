"""How Megatron-LM writes a model down: one letter per layer, in one of two notations.

A model of whole blocks is a layout (``--pipeline-model-parallel-layout``), one whose attention, MLP and Mamba layers
stand apart is a hybrid pattern (``--hybrid-layer-pattern``). In both the embedding comes first and the head with the
loss last; the hybrid pattern leaves these two out, since they cannot be anywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octoplan.baselines.partition import FIRST_STAGE_KINDS, LAST_STAGE_KINDS
from octoplan.errors import InfeasibleError
from octoplan_schemas import Layer

_BLOCKS = {"transformer": "t", "transformer_moe": "t"}
_HYBRID = {
    "mamba2": "M",
    "mamba": "M",
    "attention": "*",
    "local_attention": "*",
    "mlp": "-",
    "moe": "E",
}


@dataclass(frozen=True, slots=True)
class MegatronLayers:
    """A model in Megatron's letters.

    Attributes
    ----------
    letters:
        One string per layer; empty where Megatron adds the layer by itself.
    is_hybrid:
        Whether the letters are a hybrid pattern's.
    embedding, head:
        ``[first, end)`` layers that are the embedding, and the head with its loss.
    """

    letters: tuple[str, ...]
    is_hybrid: bool
    embedding: tuple[int, int]
    head: tuple[int, int]


def megatron_layers(layers: Sequence[Layer]) -> MegatronLayers:
    """Write a model in Megatron's letters.

    Raises
    ------
    InfeasibleError
        If it does not begin with an embedding and end with a head, or a layer between them has no letter.
    """
    kinds = [layer.kind for layer in layers]
    first = _leading(kinds, FIRST_STAGE_KINDS)
    last = len(kinds) - _leading(kinds[::-1], LAST_STAGE_KINDS)
    for is_missing, layer, what in (
        (first == 0, layers[0], "an embedding first"),
        (last == len(kinds), layers[-1], "a head last"),
    ):
        if is_missing:
            raise InfeasibleError(f"megatron builds {what}, but layer {layer.name!r} is a {layer.kind!r}")
    body = layers[first:last]
    is_hybrid = not all(layer.kind in _BLOCKS for layer in body)
    letter_of = _HYBRID if is_hybrid else _BLOCKS
    for layer in body:
        if layer.kind not in letter_of:
            known = ", ".join(sorted(_BLOCKS)) + "; or " + ", ".join(sorted(_HYBRID))
            raise InfeasibleError(
                f"megatron has no letter for layer {layer.name!r} of kind {layer.kind!r}; a model is made of {known}"
            )
    ends = ("", "") if is_hybrid else ("E", "L")
    return MegatronLayers(
        letters=(
            *_once(ends[0], first),
            *(letter_of[layer.kind] for layer in body),
            *_once(ends[1], len(kinds) - last),
        ),
        is_hybrid=is_hybrid,
        embedding=(0, first),
        head=(last, len(kinds)),
    )


def _leading(kinds: Sequence[str], known: frozenset[str]) -> int:
    count = 0
    while count < len(kinds) and kinds[count] in known:
        count += 1
    return count


def _once(letter: str, count: int) -> list[str]:
    """Megatron's embedding and head are one letter each, of however many layers they are made."""
    return [letter, *[""] * (count - 1)]
