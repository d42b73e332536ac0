"""One layer as the runtime runs it: F, then I and W, or B."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from octoplan_runtime.auxiliary import collected_losses
from octoplan_runtime.backward import backward_fused, backward_input, backward_weight
from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.stage_module import Values, as_values
from octoplan_runtime.weight_work import WeightWork

#: Of the last layer's outputs; what it returns takes their place.
Finish = Callable[[Values], torch.Tensor]


class LayerRun:
    """The ops of one layer and one microbatch, in turn, again and again.

    Parameters
    ----------
    layer:
        The layer.
    arguments:
        What it takes.
    are_inputs_trained:
        Whether gradients of the floating-point arguments are needed; not those of the model's own inputs.
    mode, device:
        How and where it runs.
    finish:
        The loss, for the last layer.
    """

    def __init__(
        self,
        layer: nn.Module,
        arguments: Sequence[torch.Tensor],
        are_inputs_trained: bool,
        mode: ForwardMode,
        device: torch.device,
        finish: Finish | None = None,
    ) -> None:
        self.layer = layer
        self.arguments = [value.detach() for value in arguments]
        self.inputs = [v for v in self.arguments if are_inputs_trained and v.is_floating_point()]
        for value in self.inputs:
            value.requires_grad_()
        for parameter in layer.parameters():
            # As in all steps but the first: gradients are state, and W adds to them.
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        self.outputs: Values = ()
        self._mode = mode
        self._device = device
        self._finish = finish
        self._roots: list[torch.Tensor] = []
        self._gradients: list[torch.Tensor] = []
        self.weight_work: WeightWork | None = None

    def forward(self) -> None:
        """Run F."""
        with self._mode.precision(self._device), collected_losses() as auxiliary:
            outputs = as_values(self.layer(*self.arguments))
            roots = outputs if self._finish is None else (self._finish(outputs),)
        self.outputs = outputs
        self._roots = [root for root in (*roots, *auxiliary) if root.requires_grad]

    def prepare_backward(self) -> None:
        """Make the gradients that a backward takes."""
        self._gradients = [torch.ones_like(root) for root in self._roots]
        for value in self.inputs:
            value.grad = None

    def backward(self) -> None:
        """Run B."""
        backward_fused(self._roots, self._gradients, self.inputs, self.layer.parameters())
        self.forget_outputs()

    def backward_input(self) -> None:
        """Run I."""
        self.weight_work = backward_input(self._roots, self._gradients, self.inputs)
        self.forget_outputs()

    def backward_weight(self) -> None:
        """Run W."""
        assert self.weight_work is not None, "I has run"
        backward_weight(self.weight_work, self.layer.parameters())
        self.weight_work = None

    def gradients_of_inputs(self) -> None:
        """Run a backward for the inputs alone; the graph stays."""
        if self.inputs and self._roots:
            torch.autograd.grad(
                self._roots, self.inputs, self._gradients, retain_graph=True, allow_unused=True
            )

    def forget_outputs(self) -> None:
        """Let go of the graph, but for what W needs."""
        self.outputs, self._roots, self._gradients = (), [], []
