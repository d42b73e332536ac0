"""One kernel-sized piece of a layer: its work, its parameters and the bytes it keeps.

Definitions. ``forward``, ``backward_input`` and ``backward_weight`` are the work of F, I and W. A flop is
one multiplication or one addition, and only products are counted (matrix products, convolutions, scans):
element-wise work is bound by memory and appears as bytes moved. An operator saves its inputs for the
backward unless it needs none; whoever reads a tensor first counts it, so that no tensor counts twice.
One with weights keeps the gradient of its output from I to W, as torch's split backward does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations, and bytes read and written."""

    flops: int = 0
    bytes: int = 0

    def __add__(self, other: Work) -> Work:
        """Return the work of both."""
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, factor: int) -> Work:
        """Return this work done several times."""
        return Work(self.flops * factor, self.bytes * factor)


@dataclass(frozen=True, slots=True)
class Operator:
    """Work and memory of one operator for one microbatch on one device.

    Parameters
    ----------
    name:
        For reports.
    parameters:
        Parameters held by this device.
    forward, backward_input, backward_weight:
        Work of F, I and W.
    saved_bytes:
        Inputs saved by F for the backward.
    stash_bytes:
        Gradient of the output that W needs: kept from the end of I.
    workspace_bytes:
        Transient tensors while the operator or its backward runs.
    forward_all_reduce_bytes, backward_all_reduce_bytes:
        Tensor summed over the tensor-parallel ranks in F and in I; zero without tensor parallelism.
    """

    name: str
    parameters: int = 0
    forward: Work = Work()
    backward_input: Work = Work()
    backward_weight: Work = Work()
    saved_bytes: int = 0
    stash_bytes: int = 0
    workspace_bytes: int = 0
    forward_all_reduce_bytes: int = 0
    backward_all_reduce_bytes: int = 0


def total_parameters(operators: Iterable[Operator]) -> int:
    """Return the parameters that one device holds for these operators."""
    return sum(operator.parameters for operator in operators)
