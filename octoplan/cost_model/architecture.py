"""A model as a list of layers, each a list of parts; parameters and flops of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from octoplan.cost_model.operator import Operator, total_parameters
from octoplan.cost_model.workload import Workload


class Part(Protocol):
    """A frozen, hashable description that lists its operators for a workload."""

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        ...


@dataclass(frozen=True, slots=True)
class ArchitectureLayer:
    """One indivisible layer.

    Parameters
    ----------
    name, kind:
        As in the model graph.
    parts:
        In forward order.
    output_streams:
        How many tensors of tokens x hidden size it hands on; the head hands on none.
    """

    name: str
    kind: str
    parts: tuple[Part, ...]
    output_streams: int = 1

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators of all parts in forward order."""
        return tuple(operator for part in self.parts for operator in part.operators(workload))


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model's layers in order, with what ties or skips between them.

    Parameters
    ----------
    tied:
        Groups of layer names that share the parameters of ``tied_parameters``.
    tied_parameters:
        Parameters that a tied group holds in common.
    skips:
        Pairs (from, to) of layer names; each carries one tensor of tokens x hidden size.
    """

    name: str
    hidden_size: int
    layers: tuple[ArchitectureLayer, ...]
    tied: tuple[tuple[str, ...], ...] = ()
    tied_parameters: int = 0
    skips: tuple[tuple[str, str], ...] = ()


def parameter_count(architecture: Architecture) -> int:
    """Return the exact number of parameters, norms and biases included, tied ones once."""
    copies = sum(len(group) - 1 for group in architecture.tied) * architecture.tied_parameters
    return _sum_over_layers(architecture, Workload(1), total_parameters) - copies


def forward_flops(architecture: Architecture, workload: Workload) -> int:
    """Return the flops of one forward pass of one microbatch on one device."""
    return _sum_over_layers(architecture, workload, lambda ops: sum(op.forward.flops for op in ops))


def _sum_over_layers(
    architecture: Architecture, workload: Workload, measure: Callable[[tuple[Operator, ...]], int]
) -> int:
    """Sum over layers; equal layers are measured once."""
    known: dict[tuple[Part, ...], int] = {}
    for layer in architecture.layers:
        if layer.parts not in known:
            known[layer.parts] = measure(layer.operators(workload))
    return sum(known[layer.parts] for layer in architecture.layers)
