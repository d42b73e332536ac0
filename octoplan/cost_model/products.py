"""Matrix products with weights: y = x A, for all tokens alike or grouped by expert.

Flops: forward 2 T in out; the gradients of input and weight are one product of the same size each.
Bytes: operands once and the result once, in bfloat16; W adds into float32 gradients (read and written).
"""

from __future__ import annotations

from typing import Literal

from octoplan.cost_model.operator import Operator, Work
from octoplan.cost_model.workload import BF16_BYTES, FP32_BYTES, Workload

#: ``column``: each rank computes a part of the outputs from the whole input; ``row``: a partial sum of all
#: outputs from its part of the input (an all-reduce follows); ``None``: every rank does all of it.
Sharding = Literal["column", "row"] | None


def linear(
    name: str,
    workload: Workload,
    num_inputs: int,
    num_outputs: int,
    *,
    bias: bool = False,
    shard: Sharding = None,
    saves_input: bool = True,
    tokens: int | None = None,
) -> Operator:
    """Return a product with one weight matrix.

    Parameters
    ----------
    num_inputs, num_outputs:
        Sizes on THIS device: the caller has divided what is sharded.
    bias:
        Adds ``num_outputs`` parameters.
    shard:
        Which all-reduce the sharding brings.
    saves_input:
        False if another operator has counted the input among its saved tensors.
    tokens:
        Rows of the product; by default the workload's.
    """
    rows = workload.tokens if tokens is None else tokens
    weights = num_inputs * num_outputs
    return _product(
        name,
        workload,
        rows,
        num_inputs,
        num_outputs,
        weights,
        weights,
        bias * num_outputs,
        shard,
        saves_input,
    )


def grouped_linear(
    name: str,
    workload: Workload,
    num_inputs: int,
    num_outputs: int,
    *,
    experts: int,
    tokens: int,
    bias: bool = False,
) -> Operator:
    """Return the products of all experts, each with its own rows; ``tokens`` counts every routed copy.

    The experts that get no row are not read; which rank gets which share does not depend on the routing,
    since the experts are sharded inside (sizes are those on this device).
    """
    weights = num_inputs * num_outputs
    read = weights * min(experts, tokens)
    biases = bias * experts * num_outputs
    return _product(
        name,
        workload,
        tokens,
        num_inputs,
        num_outputs,
        experts * weights,
        read,
        biases,
        None,
        saves_input=True,
    )


def _product(
    name: str,
    workload: Workload,
    rows: int,
    num_inputs: int,
    num_outputs: int,
    weights: int,
    weights_read: int,
    biases: int,
    shard: Sharding,
    saves_input: bool,
) -> Operator:
    flops = 2 * rows * num_inputs * num_outputs
    x, y = BF16_BYTES * rows * num_inputs, BF16_BYTES * rows * num_outputs
    moved = Work(flops, x + y + BF16_BYTES * weights_read)
    sharded = workload.tensor_parallel > 1
    return Operator(
        name,
        parameters=weights + biases,
        forward=moved,
        backward_input=moved,
        backward_weight=Work(flops, x + y + 2 * FP32_BYTES * weights_read),
        saved_bytes=x if saves_input else 0,
        stash_bytes=y,
        workspace_bytes=x + y,
        forward_all_reduce_bytes=y if sharded and shard == "row" else 0,
        backward_all_reduce_bytes=x if sharded and shard == "column" else 0,
    )
