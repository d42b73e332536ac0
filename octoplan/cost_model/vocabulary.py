"""The two ends of a language model: embedding lookup and cross-entropy.

The loss is torch's: bfloat16 logits are copied to float32, and the log-probabilities (float32) are what
the backward needs; logits and their float32 copy are transient.
"""

from __future__ import annotations

from octoplan.cost_model.operator import Operator, Work
from octoplan.cost_model.workload import BF16_BYTES, FP32_BYTES, Workload

#: Bytes of one token number (torch.int64).
_TOKEN_BYTES = 8


def embedding_lookup(workload: Workload, vocabulary: int, width: int) -> Operator:
    """Return the lookup of one row a token; there is no gradient of its input, so I costs nothing."""
    rows = BF16_BYTES * workload.tokens * width
    ids = _TOKEN_BYTES * workload.tokens
    return Operator(
        "embedding_lookup",
        parameters=vocabulary * width,
        forward=Work(bytes=2 * rows + ids),
        backward_weight=Work(bytes=rows + 2 * FP32_BYTES * workload.tokens * width + ids),
        saved_bytes=ids,
        stash_bytes=rows,
        workspace_bytes=rows,
        forward_all_reduce_bytes=rows if workload.tensor_parallel > 1 else 0,
    )


def cross_entropy(workload: Workload, vocabulary: int, *, tokens: int, softcap: bool) -> Operator:
    """Return log-softmax and loss over ``vocabulary`` logits a token; softcap adds tanh on the logits."""
    values = tokens * vocabulary
    half, single = BF16_BYTES * values, FP32_BYTES * values
    # Read bfloat16, write float32; read it, write the log-probabilities; and the same way back.
    moved = half + 3 * single + (2 * half if softcap else 0)
    return Operator(
        "cross_entropy",
        forward=Work(bytes=moved),
        backward_input=Work(bytes=moved),
        saved_bytes=single + (half if softcap else 0) + _TOKEN_BYTES * tokens,
        workspace_bytes=half + single,
    )
