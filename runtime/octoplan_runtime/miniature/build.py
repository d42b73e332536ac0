"""From a model graph to a workload of miniature layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from octoplan_runtime.miniature.attention import Attention
from octoplan_runtime.miniature.blocks import Block, Embedding, Head, MultiTokenPrediction
from octoplan_runtime.miniature.mamba2 import Mamba2
from octoplan_runtime.miniature.mlp import MLP, MixtureOfExperts
from octoplan_runtime.stage_graph import model_skips
from octoplan_runtime.workload import Workload
from octoplan_schemas import ModelGraph


@dataclass(frozen=True, slots=True)
class MiniatureSize:
    """Widths of a miniature, in numbers of elements."""

    width: int = 32
    num_heads: int = 4
    num_key_heads: int = 2
    mlp_width: int = 64
    num_experts: int = 4
    num_active_experts: int = 2
    num_state_heads: int = 8
    state_width: int = 8
    num_tokens: int = 96
    sequence_length: int = 16
    microbatch_size: int = 2


def build_miniature(
    model: ModelGraph, num_microbatches: int, *, seed: int = 0, size: MiniatureSize | None = None
) -> Workload:
    """Build a small model with layers of the same kinds in the same order.

    Parameters
    ----------
    model:
        Only the layers' kinds, the skip edges and the tied groups are used. An unknown kind becomes an MLP, and so
        does an embedding that is not the first layer or a head that is not the last: a hidden state reaches them.
    num_microbatches:
        Microbatches of a batch.
    seed:
        Layer i is initialised from ``seed + i``, so that any rank builds the same parameters.
    size:
        Widths.
    """
    chosen = size or MiniatureSize()
    kinds = [layer.kind for layer in model.layers]
    takes_tokens = kinds[0] == "embedding"

    def layer(index: int) -> nn.Module:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed + index)
            return build_layer(_kind_at(kinds, index), chosen)

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed + len(kinds) + step)
        shape = (num_microbatches * chosen.microbatch_size, chosen.sequence_length)
        tokens = torch.randint(chosen.num_tokens, shape, generator=generator)
        if takes_tokens:
            return tokens, tokens.roll(-1, dims=1)
        return torch.randn(*shape, chosen.width, generator=generator), tokens

    return Workload(len(kinds), layer, next_token_loss, batch, tuple(model_skips(model)), _tied(model, kinds))


def build_layer(kind: str, size: MiniatureSize) -> nn.Module:
    """Build one layer from torch's random state."""
    match kind:
        case "embedding":
            return Embedding(size.num_tokens, size.width)
        case "lm_head":
            return Head(size.width, size.num_tokens)
        case "attention":
            return _attention(size)
        case "moe":
            return _mixture(size)
        case "mamba2" | "mamba":
            return Mamba2(size.width, size.num_state_heads, size.state_width)
        case "transformer":
            return Block(_attention(size), _mlp(size))
        case "transformer_moe":
            return Block(_attention(size), _mixture(size))
        case "mtp":
            return MultiTokenPrediction(size.width, Block(_attention(size), _mlp(size)))
        case _:
            return _mlp(size)


def next_token_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of (batch, sequence, classes) against token ids, taken modulo the number of classes."""
    num_classes = output.shape[-1]
    return F.cross_entropy(output.flatten(0, -2), targets.flatten() % num_classes)


def _kind_at(kinds: list[str], index: int) -> str:
    kind = kinds[index]
    misplaced = (kind == "embedding" and index != 0) or (kind == "lm_head" and index != len(kinds) - 1)
    return "mlp" if misplaced else kind


#: The parameter of a kind that has one row per token; an embedding and a head share it.
_VOCABULARY = {"embedding": "table.weight", "lm_head": "project.weight"}


def _tied(model: ModelGraph, kinds: list[str]) -> tuple[tuple[str, ...], ...]:
    """Name the parameters that tied layers share: the vocabulary's table, or all that layers of one kind have."""
    index = model.layer_index()
    groups: list[tuple[str, ...]] = []
    for names in model.tied:
        layers = sorted({index[name] for name in names})
        group_kinds = [_kind_at(kinds, layer) for layer in layers]
        if all(kind in _VOCABULARY for kind in group_kinds):
            groups.append(
                tuple(
                    f"layers.{layer}.{_VOCABULARY[kind]}"
                    for layer, kind in zip(layers, group_kinds, strict=True)
                )
            )
        elif len(set(group_kinds)) == 1:
            with torch.device("meta"):
                parameters = [
                    name for name, _ in build_layer(group_kinds[0], MiniatureSize()).named_parameters()
                ]
            groups += [tuple(f"layers.{layer}.{name}" for layer in layers) for name in parameters]
    return tuple(group for group in groups if len(group) > 1)


def _attention(size: MiniatureSize) -> Attention:
    return Attention(size.width, size.num_heads, size.num_key_heads)


def _mlp(size: MiniatureSize) -> MLP:
    return MLP(size.width, size.mlp_width)


def _mixture(size: MiniatureSize) -> MixtureOfExperts:
    return MixtureOfExperts(size.width, size.mlp_width, size.num_experts, size.num_active_experts)
