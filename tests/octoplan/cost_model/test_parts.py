"""Parts against formulas written out here, and under tensor parallelism."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan.cost_model import Operator, Part, Workload, total_parameters
from octoplan.cost_model.parts import (
    Attention,
    Embedding,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    Mamba,
    Mamba2,
)

WORKLOAD = Workload(sequence_length=256, micro_batch_size=3)
TOKENS = 768


def forward_flops(operators: tuple[Operator, ...]) -> int:
    return sum(operator.forward.flops for operator in operators)


@given(
    hidden=st.integers(1, 64),
    size=st.integers(1, 64),
    experts=st.integers(1, 32),
    shared=st.integers(0, 64),
    gated=st.booleans(),
    data=st.data(),
)
def test_experts_flops_count_the_visited_and_parameters_all(
    hidden: int, size: int, experts: int, shared: int, gated: bool, data: st.DataObject
) -> None:
    visited = data.draw(st.integers(1, experts))
    matrices = 3 if gated else 2
    operators = Experts(hidden, size, experts, visited, shared_size=shared, gated=gated).operators(WORKLOAD)
    router = hidden * experts
    assert total_parameters(operators) == hidden + router + matrices * hidden * (experts * size + shared)
    assert forward_flops(operators) == 2 * TOKENS * (router + matrices * hidden * (visited * size + shared))


def test_latent_experts_work_in_the_narrow_space() -> None:
    operators = Experts(64, 32, 8, 2, gated=False, latent_size=16).operators(WORKLOAD)
    projections = 2 * 64 * 16
    assert total_parameters(operators) == 64 + 64 * 8 + projections + 8 * 2 * 16 * 32
    assert forward_flops(operators) == 2 * TOKENS * (64 * 8 + projections + 2 * 2 * 16 * 32)


def test_experts_read_no_more_weights_than_tokens_can_visit() -> None:
    few = Experts(64, 32, 100, 1).operators(Workload(sequence_length=10))
    up = next(operator for operator in few if operator.name == "experts_up")
    assert up.forward.bytes == 2 * (10 * 64 + 10 * 64 + 10 * 64 * 64)
    assert up.parameters == 100 * 64 * 64


def test_a_window_caps_scores() -> None:
    def scores(window: int | None) -> int:
        operators = Attention(64, 4, 2, 16, window=window).operators(WORKLOAD)
        return next(op.forward.flops for op in operators if op.name == "attention_scores")

    pairs = 3 * sum(min(query + 1, 32) for query in range(256))
    assert scores(32) == 2 * pairs * 4 * (16 + 16)
    assert scores(256) == scores(None) > scores(255)


def test_attention_backward_is_two_and_a_half_forwards_and_no_weight_work() -> None:
    operators = Attention(64, 4, 2, 16).operators(WORKLOAD)
    scores = next(operator for operator in operators if operator.name == "attention_scores")
    assert scores.backward_input.flops * 2 == scores.forward.flops * 5
    assert scores.backward_weight.flops == 0


def test_mamba2_scan_flops() -> None:
    operators = Mamba2(64, 8, 16, 2, 32, chunk_size=64).operators(WORKLOAD)
    scan = next(operator for operator in operators if operator.name == "chunked_scan")
    chunks, inner = TOKENS // 64, 8 * 16
    inside = chunks * (2 * 64 * 64 * 32 * 2 + 2 * 64 * 64 * inner)
    states = chunks * 2 * (2 * 64 * 32 * inner)
    assert scan.forward.flops == inside + states


PARTS: list[Part] = [
    Attention(64, 8, 4, 8, bias=False),
    LatentAttention(64, 8, 24, 16, 8, 4, 8),
    FeedForward(64, 96),
    Mamba2(64, 8, 16, 4, 32),
    Mamba(64, 128, 16, 8),
    Head(64, 1000),
    Embedding(64, 1000),
    Experts(64, 32, 8, 2, shared_size=16),
]

#: Replicated: norms (of heads too), low-rank projections, router, biases of row-sharded products.
WHOLE_ON_EVERY_RANK = {
    "input_norm",
    "final_norm",
    "kv_norm",
    "q_norm",
    "q_down",
    "kv_down",
    "router",
    "selection_norm",
}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_hold_every_parameter_and_do_every_flop(part: Part, ranks: int) -> None:
    whole = part.operators(WORKLOAD)
    shared = part.operators(Workload(256, 3, tensor_parallel=ranks))
    assert [operator.name for operator in whole] == [operator.name for operator in shared]
    for one, each in zip(whole, shared, strict=True):
        times = 1 if one.name in WHOLE_ON_EVERY_RANK else ranks
        assert each.parameters * times == one.parameters
        for phase in ("forward", "backward_input", "backward_weight"):
            assert getattr(each, phase).flops * times == getattr(one, phase).flops
        assert each.saved_bytes <= one.saved_bytes


#: Tensors of tokens x width that are summed over the ranks in F and in I.
REDUCED_WIDTHS = {
    Attention: ([64], [64]),
    # The two up projections give back gradients of their low-rank inputs.
    LatentAttention: ([64], [24, 16]),
    FeedForward: ([64], [64]),
    Mamba2: ([64], [64]),
    # Time step, B and C come from all channels; their rank is that of the time step's gradient.
    Mamba: ([8 + 2 * 16, 64], [64, 8]),
    Head: ([], [64]),
    Embedding: ([64], []),
    # Routed and shared experts.
    Experts: ([64, 64], [64, 64]),
}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_what_is_summed_over_the_ranks(part: Part) -> None:
    operators = part.operators(Workload(256, 3, tensor_parallel=2))
    forward, backward = REDUCED_WIDTHS[type(part)]
    sums = [op.forward_all_reduce_bytes for op in operators if op.forward_all_reduce_bytes]
    assert sums == [2 * TOKENS * width for width in forward]
    sums = [op.backward_all_reduce_bytes for op in operators if op.backward_all_reduce_bytes]
    assert sums == [2 * TOKENS * width for width in backward]
    for operator in part.operators(WORKLOAD):
        assert operator.forward_all_reduce_bytes == operator.backward_all_reduce_bytes == 0
