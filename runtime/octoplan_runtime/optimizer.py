"""The optimizer that `octoplan run` trains with."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer | None:
    """Return SGD with momentum, or None where there is nothing to train.

    An optimizer that divides by the gradient's size (Adam) would turn rounding errors of tiny gradients
    into large differences between two runs, and the comparison with a single process would say nothing.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return torch.optim.SGD(trained, lr=0.01, momentum=0.9) if trained else None
