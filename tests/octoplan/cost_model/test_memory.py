"""Memory: state by arithmetic, saved tensors against what torch's autograd saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch.nn.attention import SDPBackend, sdpa_kernel

from octoplan.cost_model import LayerMemory, Part, Workload, layer_memory, state_bytes
from octoplan.cost_model.parts import Attention, Embedding, FeedForward, Head

BATCH, LENGTH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, VOCABULARY = 2, 128, 64, 4, 2, 16, 96, 1000
WORKLOAD = Workload(LENGTH, BATCH)


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16).requires_grad_()


def memory_of(part: Part) -> LayerMemory:
    return layer_memory(part.operators(WORKLOAD), WORKLOAD, hidden_size=HIDDEN)


def saved_by_torch(
    function: Callable[[torch.Tensor], torch.Tensor], parameters: Sequence[torch.Tensor]
) -> int:
    """Return the bytes of the distinct tensors, parameters aside, that a forward pass saves."""
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own:
            kept[address] = tensor
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    ):
        function(weights(BATCH, LENGTH, HIDDEN))
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return a layer norm: torch's fused norm on CPU; saves one more number a token than RMSNorm does."""
    return F.layer_norm(x, (HIDDEN,), scale)


def test_attention_saves_what_torch_saves() -> None:
    scale = weights(HIDDEN)
    q, k, v = (weights(heads * HEAD_DIM, HIDDEN) for heads in (HEADS, KV_HEADS, KV_HEADS))
    out = weights(HIDDEN, HEADS * HEAD_DIM)

    def attention(x: torch.Tensor) -> torch.Tensor:
        y = norm(x, scale)
        states = [F.linear(y, w).view(BATCH, LENGTH, -1, HEAD_DIM).transpose(1, 2) for w in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*states, is_causal=True, enable_gqa=True)
        return x + F.linear(mixed.transpose(1, 2).reshape(BATCH, LENGTH, -1), out)

    expected = saved_by_torch(attention, [scale, q, k, v, out])
    part = Attention(HIDDEN, HEADS, KV_HEADS, HEAD_DIM, rotary=False)
    assert memory_of(part).activation_bytes == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward_saves_what_torch_saves(gated: bool) -> None:
    scale, up, gate, down = (
        weights(HIDDEN),
        weights(WIDTH, HIDDEN),
        weights(WIDTH, HIDDEN),
        weights(HIDDEN, WIDTH),
    )

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        y = norm(x, scale)
        inner = F.silu(F.linear(y, gate)) * F.linear(y, up) if gated else F.relu(F.linear(y, up)).square()
        return x + F.linear(inner, down)

    expected = saved_by_torch(feed_forward, [scale, up, gate, down])
    # A fused gate computes silu again; two separate operators save it.
    separate_silu = 2 * BATCH * LENGTH * WIDTH if gated else 0
    activation = memory_of(FeedForward(HIDDEN, WIDTH, gated=gated)).activation_bytes
    assert activation + separate_silu == pytest.approx(expected, rel=0.02)


def test_head_saves_what_torch_saves() -> None:
    scale, out = weights(HIDDEN), weights(VOCABULARY, HIDDEN)
    targets = torch.zeros(BATCH * LENGTH, dtype=torch.long)

    def head(x: torch.Tensor) -> torch.Tensor:
        logits = F.linear(norm(x, scale), out).flatten(0, 1)
        return F.cross_entropy(logits.float(), targets)

    expected = saved_by_torch(head, [scale, out])
    assert memory_of(Head(HIDDEN, VOCABULARY)).activation_bytes == pytest.approx(expected, rel=0.02)


def test_no_attention_tensor_grows_with_the_square_of_the_sequence() -> None:
    part = Attention(HIDDEN, HEADS, KV_HEADS, HEAD_DIM)
    small, large = (
        layer_memory(part.operators(w), w, hidden_size=HIDDEN) for w in (Workload(1024), Workload(4096))
    )
    assert large.activation_bytes == 4 * small.activation_bytes
    assert large.workspace_bytes == 4 * small.workspace_bytes


def test_stash_is_the_gradient_of_every_weighted_output() -> None:
    tokens = BATCH * LENGTH
    outputs = HIDDEN + (HEADS + 2 * KV_HEADS) * HEAD_DIM + HIDDEN
    part = Attention(HIDDEN, HEADS, KV_HEADS, HEAD_DIM)
    assert memory_of(part).weight_stash_bytes == 2 * tokens * outputs
    assert memory_of(Embedding(HIDDEN, VOCABULARY)).weight_stash_bytes == 2 * tokens * HIDDEN
    assert memory_of(Head(HIDDEN, VOCABULARY)).weight_stash_bytes == 2 * tokens * (HIDDEN + VOCABULARY)


@pytest.mark.parametrize(
    ("data_parallel", "expected"), [(1, 18 * 1000), (4, 6 * 1000 + 12 * 250), (3, 6 * 1000 + 12 * 334)]
)
def test_state_of_adam_with_zero_1(data_parallel: int, expected: int) -> None:
    assert state_bytes(1000, data_parallel) == expected
