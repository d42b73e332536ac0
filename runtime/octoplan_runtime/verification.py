"""Compare a pipeline's losses and gradients with the same steps in a single process.

Rank 0 runs the whole model and sends each gradient to the rank that holds the parameter, which compares.
The relative error of a parameter is max|a - b| / max|b| (contract, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from octoplan_runtime.executor import PipelineExecutor
from octoplan_runtime.microbatches import Batch
from octoplan_runtime.optimizer import make_optimizer
from octoplan_runtime.reference import SingleProcess

#: Relative errors up to these count as equal: rounding of sums in another order.
TOLERANCES = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 5e-2, "float16": 1e-2}


@dataclass(slots=True)
class Worst:
    """The largest relative error so far and the parameter that has it (its number on its rank)."""

    error: float = 0.0
    parameter: int = -1

    def update(self, error: float, parameter: int) -> None:
        """Take a larger error; NaN counts as infinite."""
        error = math.inf if math.isnan(error) else error
        if self.parameter < 0 or error > self.error:
            self.error, self.parameter = error, parameter


class Verification:
    """The comparison over the steps of a run; every rank takes part.

    Parameters
    ----------
    executor:
        This rank's part of the pipeline.
    reference:
        The whole model; on rank 0 only.
    ranks:
        The rank of every layer.
    """

    def __init__(
        self, executor: PipelineExecutor, reference: SingleProcess | None, ranks: Sequence[int]
    ) -> None:
        self._executor = executor
        self._reference = reference
        self._ranks = ranks
        self._optimizer = make_optimizer(reference.module.parameters()) if reference else None
        self.worst = Worst()
        self.worst_loss_error = 0.0

    def compare(self, inputs: Batch, targets: Batch, loss: torch.Tensor) -> None:
        """Run the step in a single process and compare; call it before the pipeline's own optimizer step."""
        if self._reference is not None:
            self._executor.progress.enter("the single-process run")
            self._compare_loss(self._reference.step(inputs, targets), loss)
        self._executor.progress.enter("the comparison of gradients")
        expected = self._own_gradients()
        for number, (_, parameter) in enumerate(self._executor.named_parameters()):
            self.worst.update(relative_error(_gradient(parameter), expected[number]), number)
        if self._optimizer is not None:
            self._optimizer.step()
            self._optimizer.zero_grad()

    def names_of(self, rank: int) -> list[str]:
        """Return the names of a rank's parameters; on rank 0 only."""
        assert self._reference is not None
        return [name for name, _ in self._parameters_of(rank)]

    def _compare_loss(self, expected: torch.Tensor, loss: torch.Tensor) -> None:
        error = relative_error(loss, expected)
        self.worst_loss_error = max(self.worst_loss_error, math.inf if math.isnan(error) else error)

    def _own_gradients(self) -> list[torch.Tensor]:
        """Return the reference's gradients of this rank's parameters, sending the others theirs on rank 0."""
        if self._reference is None:
            return [_received(parameter) for _, parameter in self._executor.named_parameters()]
        for rank in range(1, self._executor.plan.num_ranks):
            for _, parameter in self._parameters_of(rank):
                dist.send(_gradient(parameter).contiguous(), dst=rank)
        return [_gradient(parameter) for _, parameter in self._parameters_of(0)]

    def _parameters_of(self, rank: int) -> list[tuple[str, torch.nn.Parameter]]:
        """Return the reference's parameters that a rank holds, in that rank's order: a tied one once."""
        assert self._reference is not None
        own: dict[int, tuple[str, torch.nn.Parameter]] = {}
        for name, parameter in self._reference.module.named_parameters(remove_duplicate=False):
            if self._owner(name) == rank:
                own.setdefault(id(parameter), (name, parameter))
        return list(own.values())

    def _owner(self, name: str) -> int:
        return self._ranks[int(name.split(".")[1])]


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return max|a - b| / max|b|; where b is zero, 0 if a is zero too and else infinity."""
    if not expected.numel():
        return 0.0
    difference = (found.to(torch.float64) - expected.to(torch.float64)).abs().max().item()
    scale = expected.to(torch.float64).abs().max().item()
    if scale == 0.0:
        return 0.0 if difference == 0.0 else math.inf
    return difference / scale


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _received(parameter: torch.nn.Parameter) -> torch.Tensor:
    buffer = torch.empty_like(parameter, memory_format=torch.contiguous_format)
    dist.recv(buffer, src=0)
    return buffer.detach()
