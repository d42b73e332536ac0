"""The same training in one process: plain torch, every microbatch in turn, gradients accumulated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from octoplan_runtime.interpreter import LossFunction
from octoplan_runtime.microbatches import Batch, split_batch
from octoplan_runtime.stage_graph import MODEL_INPUT, layer_feeds
from octoplan_runtime.stage_module import Layers, StageModule, as_values


class SingleProcess:
    """The whole model in this process.

    Parameters
    ----------
    layers, loss_function, skips:
        As of `octoplan_runtime.PipelineExecutor`.
    num_layers:
        Number of layers of the model.
    num_microbatches:
        Number of equal parts of a batch.
    """

    def __init__(
        self,
        layers: Layers,
        loss_function: LossFunction,
        *,
        num_layers: int,
        num_microbatches: int,
        skips: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.module = StageModule(layers, (0, num_layers), layer_feeds(num_layers, skips), (num_layers - 1,))
        self._loss_function = loss_function
        self._num_microbatches = num_microbatches

    def step(self, inputs: Batch, targets: Batch) -> torch.Tensor:
        """Add the gradients of the mean of the microbatches' losses to ``.grad``; return that mean in
        float64."""
        losses = []
        microbatches = zip(
            split_batch(inputs, self._num_microbatches, "inputs"),
            split_batch(targets, self._num_microbatches, "targets"),
            strict=True,
        )
        for microbatch, target in microbatches:
            (values,) = self.module({MODEL_INPUT: as_values(microbatch)}).values()
            loss = self._loss_function(values[0] if len(values) == 1 else values, target)
            torch.autograd.backward(loss / self._num_microbatches)
            losses.append(loss.detach().reshape(()).to(torch.float64))
        return torch.stack(losses).mean()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield every parameter under its global name, in layer order."""
        yield from self.module.named_parameters()
