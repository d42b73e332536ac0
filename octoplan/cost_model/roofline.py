"""Time of an operator: the longer of computing and moving memory, each at its efficiency.

Operators of a layer run one after another, so their times add up. Tensor-parallel all-reduces add a ring's
time, 2 (n - 1) steps of bytes / n each, where the link is known; otherwise they are left out.
Known limits: one efficiency for all products whatever their shape, and no launch overhead (the cluster's
``op_overhead_s`` stands for that).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octoplan.cost_model.operator import Operator, Work
from octoplan_schemas import Link, OpCost

#: Share of the peak flop/s that large bfloat16 products reach in training.
DEFAULT_COMPUTE_EFFICIENCY = 0.6
#: Share of the memory bandwidth that element-wise kernels reach.
DEFAULT_MEMORY_EFFICIENCY = 0.8


@dataclass(frozen=True, slots=True)
class Roofline:
    """Speed of a device as programs see it.

    Parameters
    ----------
    peak_flops, memory_bandwidth:
        Flop/s and bytes per second of the data sheet.
    compute_efficiency, memory_efficiency:
        Share of each that is reached, above 0 and up to 1.
    """

    peak_flops: float
    memory_bandwidth: float
    compute_efficiency: float = DEFAULT_COMPUTE_EFFICIENCY
    memory_efficiency: float = DEFAULT_MEMORY_EFFICIENCY

    def seconds(self, work: Work) -> float:
        """Return the time of one operator's work."""
        compute_s = work.flops / (self.peak_flops * self.compute_efficiency)
        memory_s = work.bytes / (self.memory_bandwidth * self.memory_efficiency)
        return max(compute_s, memory_s)


def layer_cost(
    operators: Sequence[Operator], roofline: Roofline, *, tensor_parallel: int = 1, link: Link | None = None
) -> OpCost:
    """Return the times of F, I and W of a layer; ``link`` joins the tensor-parallel ranks."""
    forward_s = sum(roofline.seconds(operator.forward) for operator in operators)
    input_s = sum(roofline.seconds(operator.backward_input) for operator in operators)
    if link is not None and tensor_parallel > 1:
        forward_s += sum(_ring_s(op.forward_all_reduce_bytes, tensor_parallel, link) for op in operators)
        input_s += sum(_ring_s(op.backward_all_reduce_bytes, tensor_parallel, link) for op in operators)
    return OpCost(
        forward_s=forward_s,
        backward_input_s=input_s,
        backward_weight_s=sum(roofline.seconds(operator.backward_weight) for operator in operators),
    )


def _ring_s(num_bytes: int, ranks: int, link: Link) -> float:
    if not num_bytes:
        return 0.0
    return 2 * (ranks - 1) * (link.latency_s + num_bytes / ranks / link.bandwidth)
