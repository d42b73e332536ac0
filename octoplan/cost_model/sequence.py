"""Operators that mix tokens of a sequence: attention scores, short convolutions, state-space scans.

Attention follows flash attention: no s x s tensor is ever stored. Its backward computes the scores again
(one product of Q and K) and four products for the gradients of V, P, Q and K: with equal head sizes 2.5
times the forward. The Mamba-2 scan follows the chunked algorithm (state-space duality, Dao and Gu, 2024):
inside a chunk of Q tokens the products C B^T and (C B^T) X, between chunks the states B^T X and C times
state; its backward is two such passes and one to compute the states again. All of it is done in I.
"""

from __future__ import annotations

from octoplan.cost_model.operator import Operator, Work
from octoplan.cost_model.workload import BF16_BYTES, FP32_BYTES, Workload


def attention_scores(
    workload: Workload, *, heads: int, kv_heads: int, qk_dim: int, v_dim: int, window: int | None
) -> Operator:
    """Return softmax(Q K^T) V; head counts are those of this device.

    The output is saved too, but as the input of the output projection.
    """
    tokens = workload.tokens
    products = 2 * workload.micro_batch_size * workload.score_pairs(window) * heads
    q, out = BF16_BYTES * tokens * heads * qk_dim, BF16_BYTES * tokens * heads * v_dim
    kv = BF16_BYTES * tokens * kv_heads * (qk_dim + v_dim)
    log_sums = FP32_BYTES * tokens * heads
    return Operator(
        "attention_scores",
        forward=Work(products * (qk_dim + v_dim), q + kv + out + log_sums),
        backward_input=Work(products * (3 * qk_dim + 2 * v_dim), 2 * (q + kv + out) + log_sums),
        saved_bytes=q + kv + log_sums,
        # The gradients of Q, K, V and of the output; Q's is summed up in float32 first.
        workspace_bytes=q + kv + out + FP32_BYTES * tokens * heads * qk_dim,
    )


def causal_convolution(workload: Workload, channels: int, kernel: int, *, bias: bool) -> Operator:
    """Return a depthwise convolution along the sequence; saves its input."""
    values = BF16_BYTES * workload.tokens * channels
    work = Work(2 * kernel * workload.tokens * channels, 2 * values)
    return Operator(
        "convolution",
        parameters=channels * (kernel + bias),
        forward=work,
        backward_input=work,
        backward_weight=work,
        saved_bytes=values,
        stash_bytes=values,
        workspace_bytes=2 * values,
    )


def chunked_scan(
    workload: Workload, *, heads: int, head_dim: int, groups: int, state_size: int, chunk_size: int
) -> Operator:
    """Return the Mamba-2 scan; saves the time steps alone.

    Its other inputs come out of the convolution, whose saved input the fused kernel starts from again.
    """
    tokens, inner = workload.tokens, heads * head_dim
    chunk = min(chunk_size, workload.sequence_length)
    flops = 2 * tokens * (chunk * (groups * state_size + inner) + 2 * state_size * inner)
    values = BF16_BYTES * tokens * (2 * inner + 2 * groups * state_size + heads)
    states = FP32_BYTES * -(-tokens // chunk) * inner * state_size
    work = Work(flops, values + 2 * states)
    return Operator(
        "chunked_scan",
        parameters=3 * heads,
        forward=work,
        backward_input=work.times(3),
        saved_bytes=BF16_BYTES * tokens * heads,
        workspace_bytes=values + 2 * states,
    )


def selective_scan(workload: Workload, *, inner: int, state_size: int) -> Operator:
    """Return the Mamba-1 scan with its gate: bound by memory, since its recurrence is no matrix product.

    It saves time steps, gate, B and C; the scanned input is saved by the projection that reads it first.
    """
    values = BF16_BYTES * workload.tokens * inner
    b_and_c = 2 * BF16_BYTES * workload.tokens * state_size
    return Operator(
        "selective_scan",
        parameters=inner * (state_size + 1),
        forward=Work(bytes=4 * values + b_and_c),
        backward_input=Work(bytes=7 * values + 2 * b_and_c),
        saved_bytes=2 * values + b_and_c,
        workspace_bytes=4 * values + 2 * b_and_c,
    )
