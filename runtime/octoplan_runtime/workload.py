"""What is trained: layers, loss and batches."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from octoplan_runtime.errors import one_line
from octoplan_runtime.interpreter import LossFunction
from octoplan_runtime.microbatches import Batch
from octoplan_schemas import InputError


@dataclass(frozen=True, slots=True)
class Workload:
    """A model and its data, each part built where it is needed.

    Attributes
    ----------
    num_layers:
        Number of layers of the whole model.
    layer:
        Builds the layer with the given index; every call gives the same initial parameters, on any rank.
    loss:
        Takes the last layer's output and the targets of one microbatch, returns a scalar.
    batch:
        Returns inputs and targets of a step: all microbatches together, along dimension 0.
    skips:
        Layer indices ``(source, destination)`` of skip edges: what the destination takes after its chain input.
    tied:
        Groups of parameters, ``layers.INDEX.NAME``, that are one and the same.
    """

    num_layers: int
    layer: Callable[[int], nn.Module]
    loss: LossFunction
    batch: Callable[[int], tuple[Batch, Batch]]
    skips: tuple[tuple[int, int], ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()

    def layer_in(self, dtype: torch.dtype) -> Callable[[int], nn.Module]:
        """Return a builder of layers whose floating-point parameters have the given dtype."""
        return lambda index: self.layer(index).to(dtype)

    def batch_in(self, step: int, dtype: torch.dtype) -> tuple[Batch, Batch]:
        """Return inputs and targets of a step, floating-point tensors in the given dtype."""
        inputs, targets = self.batch(step)
        return _cast(inputs, dtype), _cast(targets, dtype)


def import_workload(reference: str, argument: str = "--layers") -> Workload:
    """Call ``MODULE:FUNCTION`` and return the `Workload` that it builds; errors name the command's argument.

    Raises
    ------
    InputError
        If there is no such module or function, or it returns something else.
    """
    module_name, colon, function_name = reference.partition(":")
    if not colon or not module_name or not function_name:
        raise InputError(f"{argument}: {reference!r} must be written MODULE:FUNCTION")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as error:
        raise InputError(f"{argument}: {error}; is its folder on PYTHONPATH?") from None
    except AttributeError:
        raise InputError(f"{argument}: module {module_name!r} has no {function_name!r}") from None
    try:
        workload = function()
    except Exception as error:
        raise InputError(f"{argument}: {reference} raised {one_line(error)}") from error
    if not isinstance(workload, Workload):
        raise InputError(
            f"{argument}: {reference} must return an octoplan_runtime.Workload, not {type(workload).__name__}"
        )
    return workload


def _cast(batch: Batch, dtype: torch.dtype) -> Batch:
    if isinstance(batch, tuple):
        return tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in batch)
    return batch.to(dtype) if batch.is_floating_point() else batch
