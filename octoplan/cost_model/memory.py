"""Training memory of one layer on one device.

Mixed-precision Adam holds 18 bytes a parameter: bfloat16 weights (2), float32 gradients (4), and float32
master weights and two moments (12). ZeRO-1 divides the last 12 by the data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octoplan.cost_model.operator import Operator, total_parameters
from octoplan.cost_model.workload import BF16_BYTES, FP32_BYTES, Workload

#: Bytes a parameter that every data-parallel rank holds: weight and gradient.
REPLICATED_STATE_BYTES = BF16_BYTES + FP32_BYTES
#: Bytes a parameter that ZeRO-1 shards: master weight and the two moments of Adam.
OPTIMIZER_STATE_BYTES = 3 * FP32_BYTES


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """The byte fields of a layer (contract, section 1), per microbatch but for ``state_bytes``."""

    state_bytes: int
    activation_bytes: int
    weight_stash_bytes: int
    workspace_bytes: int


def layer_memory(
    operators: Sequence[Operator], workload: Workload, *, hidden_size: int, data_parallel: int = 1
) -> LayerMemory:
    """Return the memory of a layer made of these operators.

    The workspace is that of the greediest operator, and the gradient of the residual stream beside it.
    """
    residual_gradient = BF16_BYTES * workload.tokens * hidden_size
    return LayerMemory(
        state_bytes=state_bytes(total_parameters(operators), data_parallel),
        activation_bytes=sum(operator.saved_bytes for operator in operators),
        weight_stash_bytes=sum(operator.stash_bytes for operator in operators),
        workspace_bytes=max(operator.workspace_bytes for operator in operators) + residual_gradient,
    )


def state_bytes(parameters: int, data_parallel: int = 1) -> int:
    """Return weights, gradients and optimizer state of a device's parameters; shards are rounded up."""
    sharded = -(-parameters // data_parallel)
    return parameters * REPLICATED_STATE_BYTES + sharded * OPTIMIZER_STATE_BYTES
