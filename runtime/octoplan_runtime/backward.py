"""Fused and split backward of one stage and one microbatch.

The split uses torch's own ``stage_backward_input`` and ``stage_backward_weight``, within the limits in
which they are right. Their weight half works on groups: the weights that gradients reach through the same
nodes of the graph. Where a weight is used more than once in a stage, its group has several such nodes; then
torch up to 2.13 frees a part of the graph that another group still needs, or counts a gradient twice. Those
weights, and those that no path from the stage's inputs leads past, get their gradient by ordinary autograd
during I.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

#: What W has to do, left behind by I.
WeightWork = Callable[[], None]
_Group = dict[str, Any]


def backward_fused(roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
    """Run the whole backward: gradients are added to ``.grad`` of the weights and of the stage's inputs."""
    if roots:
        torch.autograd.backward(list(roots), list(gradients))


def backward_input(
    roots: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.nn.Parameter],
) -> WeightWork:
    """Run I: set ``.grad`` of the stage's inputs, and return what is left to do for W.

    Parameters
    ----------
    roots:
        Outputs of the stage (or its loss) that require a gradient.
    gradients:
        Their gradients.
    inputs:
        Leaves that need a gradient. Where there are none (the first stage), W does the whole backward.
    weights:
        Parameters of the stage that require a gradient.
    """
    if not roots or not inputs:
        return partial(backward_fused, roots, gradients)
    # Loading this takes longer than all else here, and a plan without I never needs it.
    from torch.distributed.pipelining._backward import stage_backward_input

    aliases: list[torch.Tensor] = [_Alias.apply(root) for root in roots]  # type: ignore[no-untyped-call]
    edges = [get_gradient_edge(alias) for alias in aliases]
    _, groups = stage_backward_input(aliases, list(gradients), list(inputs), iter(weights))
    simple, rest = _separate(groups, edges, weights)
    if rest:
        # The engine takes edges as well as tensors here; its annotation lags behind.
        torch.autograd.backward(edges, list(gradients), retain_graph=True, inputs=rest)
    return partial(_backward_weight, weights, simple)


class _Alias(torch.autograd.Function):
    """The same values as a tensor of its own.

    Torch detaches the roots in place, which views and leaves do not allow, and which breaks W where a later
    layer of the same stage has saved the root for its own backward.
    """

    @staticmethod
    def forward(ctx: Any, root: torch.Tensor) -> torch.Tensor:
        return root.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def _separate(
    groups: list[_Group], edges: Sequence[GradientEdge], weights: Sequence[torch.nn.Parameter]
) -> tuple[list[_Group], list[torch.nn.Parameter]]:
    """Return the groups that torch handles rightly, and the weights that are left over."""
    num_groups = Counter(node for group in groups for node in group["params"])
    simple = [
        group
        for group in groups
        if len(group["intermediates"]) == 1 and all(num_groups[node] == 1 for node in group["params"])
    ]
    covered = {id(node.variable) for group in simple for node in group["params"]}
    rest = [weight for weight in weights if id(weight) not in covered]
    if rest:
        used = {id(leaf) for leaf in _leaves(edges)}
        rest = [weight for weight in rest if id(weight) in used]
    return simple, rest


def _leaves(edges: Sequence[GradientEdge]) -> list[torch.Tensor]:
    """Return every leaf that the graph behind the edges leads to."""
    seen: set[Node] = set()
    stack = [edge.node for edge in edges]
    leaves: list[torch.Tensor] = []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        stack.extend(following for following, _ in node.next_functions if following is not None)
    return leaves


def _backward_weight(weights: Sequence[torch.nn.Parameter], groups: list[_Group]) -> None:
    from torch.distributed.pipelining._backward import stage_backward_weight

    for group in groups:
        for node in group["params"]:
            # Torch would store the first gradient as it is, even where it is a view of a gradient still in
            # use elsewhere, and later add to it in place.
            if node.variable.grad is None:
                node.variable.grad = torch.zeros_like(node.variable)
    stage_backward_weight(iter(weights), groups)
