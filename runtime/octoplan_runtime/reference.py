"""The same training in one process: plain torch, every microbatch in turn, gradients accumulated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from octoplan_runtime.auxiliary import collected_losses
from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.interpreter import LossFunction
from octoplan_runtime.microbatches import Batch, MicrobatchWeight, loss_shares, split_batch
from octoplan_runtime.stage_graph import MODEL_INPUT, layer_feeds
from octoplan_runtime.stage_module import Layers, StageModule, as_values
from octoplan_runtime.tied import TiedNames, share


class SingleProcess:
    """The whole model in this process.

    Parameters
    ----------
    layers, loss_function, skips, tied, mode, microbatch_weight:
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
        tied: Iterable[TiedNames] = (),
        mode: ForwardMode | None = None,
        microbatch_weight: MicrobatchWeight | None = None,
    ) -> None:
        self.module = StageModule(layers, (0, num_layers), layer_feeds(num_layers, skips), (num_layers - 1,))
        for names in tied:
            share([self.module], names)
        self.step_number = 0
        self._mode = mode or ForwardMode()
        self._microbatch_weight = microbatch_weight
        self._loss_function = loss_function
        self._num_microbatches = num_microbatches

    def step(self, inputs: Batch, targets: Batch) -> torch.Tensor:
        """Add the gradients of the microbatches' losses, averaged, to ``.grad``; return that mean in float64."""
        inputs_list = split_batch(inputs, self._num_microbatches, "inputs")
        targets_list = split_batch(targets, self._num_microbatches, "targets")
        shares = loss_shares(targets_list, self._microbatch_weight)
        total = torch.zeros((), dtype=torch.float64)
        for number, share_of_loss in enumerate(shares):
            loss = self._loss(number, inputs_list[number], targets_list[number], share_of_loss)
            torch.autograd.backward(loss)
            total += loss.detach().reshape(()).to(total)
        self.step_number += 1
        return total

    def _loss(self, number: int, inputs: Any, target: Any, share_of_loss: float) -> torch.Tensor:
        values = as_values(inputs)
        device = values[0].device
        randomness = self._mode.randomness(self.step_number, number, device)
        with self._mode.precision(device), collected_losses() as auxiliary:
            (outputs,) = self.module({MODEL_INPUT: values}, randomness).values()
            loss = self._loss_function(outputs[0] if len(outputs) == 1 else outputs, target)
        total = loss * share_of_loss
        for extra in auxiliary:
            total = total + extra / self._num_microbatches
        return total

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield every parameter under its global name, in layer order."""
        yield from self.module.named_parameters()
