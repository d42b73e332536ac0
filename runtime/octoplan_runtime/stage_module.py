"""One stage as a torch module: its own layers and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from octoplan_runtime.forward import RandomState
from octoplan_runtime.stage_graph import MODEL_INPUT

#: What a layer gives: one or several tensors.
Values = tuple[torch.Tensor, ...]
_Listed = Sequence[nn.Module] | nn.ModuleList | nn.Sequential
#: A list of all layers, or a function that builds the layer with the given index.
Layers = Callable[[int], nn.Module] | _Listed


class StageModule(nn.Module):
    """The layers ``[first, end)`` of a model.

    Parameters
    ----------
    layers:
        Where the layers come from; only those of this stage are asked for.
    bounds:
        ``[first, end)``.
    feeds:
        For every layer of the model, the layers that it takes its arguments from.
    exports:
        Layers of this stage whose outputs are returned.
    """

    def __init__(
        self,
        layers: Layers,
        bounds: tuple[int, int],
        feeds: Sequence[tuple[int, ...]],
        exports: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(layer): _build(layers, layer) for layer in range(*bounds)})
        self.exports = exports
        self._feeds = [(layer, feeds[layer]) for layer in range(*bounds)]

    def forward(
        self, received: Mapping[int, Values], randomness: RandomState | None = None
    ) -> dict[int, Values]:
        """Run the layers.

        Parameters
        ----------
        received:
            Outputs of layers of earlier stages; `MODEL_INPUT` stands for the model's inputs.
        randomness:
            Gives the random state that a layer runs in; None for the process's own.

        Returns
        -------
        dict
            The outputs of the exported layers.
        """
        values = dict(received)
        for layer, feeds in self._feeds:
            arguments = [tensor for feed in feeds for tensor in values[feed]]
            with randomness(layer) if randomness else nullcontext():
                values[layer] = as_values(self.layers[str(layer)](*arguments), layer)
        return {layer: values[layer] for layer in self.exports}


def listed_layers(layers: Layers) -> _Listed | None:
    """Return a list of layers, None for a function; torch's own lists can be called too."""
    return layers if isinstance(layers, Sequence | nn.ModuleList | nn.Sequential) else None


def as_values(output: Any, layer: int = MODEL_INPUT) -> Values:
    """Return a tensor or a tuple or list of tensors as a tuple."""
    values = (output,) if isinstance(output, torch.Tensor) else output
    if not isinstance(values, tuple | list) or not all(isinstance(value, torch.Tensor) for value in values):
        what = "the inputs" if layer == MODEL_INPUT else f"the output of layer {layer}"
        raise TypeError(f"{what} must be a tensor or a tuple of tensors, not {type(output).__name__}")
    return tuple(values)


def _build(layers: Layers, layer: int) -> nn.Module:
    listed = listed_layers(layers)
    return listed[layer] if listed is not None else layers(layer)  # type: ignore[operator]
