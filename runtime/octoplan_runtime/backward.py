"""Fused and split backward of one stage and one microbatch, on torch's public autograd alone.

Torch's own ``stage_backward_input`` and ``stage_backward_weight`` are private, change from release to release, and up
to 2.12 go wrong where a weight is used twice in a stage or a node has several outputs; `WeightWork` does what they are
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.module import register_module_forward_pre_hook

from octoplan_runtime.weight_work import WeightWork, split_at_cuts

Tensors = Sequence[torch.Tensor]


def backward_fused(
    roots: Tensors, gradients: Tensors, inputs: Tensors, weights: Iterable[torch.Tensor]
) -> None:
    """Run the whole backward: gradients are added to ``.grad`` of the weights and of the stage's inputs.

    Parameters
    ----------
    roots:
        Outputs of the stage (or its loss) that require a gradient.
    gradients:
        Their gradients.
    inputs:
        The stage's inputs that need a gradient, leaves.
    weights:
        Parameters of the stage.
    """
    if not roots:
        return
    with _gradients_of_their_own(weights, gradients, inputs):
        torch.autograd.backward(list(roots), list(gradients))


def backward_input(roots: Tensors, gradients: Tensors, inputs: Tensors) -> WeightWork:
    """Run I: set ``.grad`` of the stage's inputs, and return what is left to do for W.

    Parameters
    ----------
    roots, gradients, inputs:
        As of `backward_fused`. Where there are no inputs (the first stage), W does the whole backward.
    """
    outputs = list(zip(map(get_gradient_edge, roots), gradients, strict=True))
    starts, work = split_at_cuts(outputs, {get_gradient_edge(leaf).node for leaf in inputs})
    hooks = [cut.node.register_prehook(cut.keep) for cut in work.cuts]
    recomputed: list[nn.Module] = []
    hooks.append(register_module_forward_pre_hook(lambda module, arguments: recomputed.append(module)))
    try:
        if starts:
            edges, incoming = zip(*starts, strict=True)
            found = torch.autograd.grad(edges, list(inputs), incoming, retain_graph=True, allow_unused=True)
            for leaf, gradient in zip(inputs, found, strict=True):
                leaf.grad = gradient
    finally:
        for hook in hooks:
            hook.remove()
    if recomputed:
        work.join()
    return work


def backward_weight(work: WeightWork, weights: Iterable[torch.Tensor]) -> None:
    """Run W: gradients are added to ``.grad`` of the weights."""
    with _gradients_of_their_own(weights, work.gradients(), ()):
        work.run()


@contextmanager
def _gradients_of_their_own(
    weights: Iterable[torch.Tensor], gradients: Tensors, inputs: Tensors
) -> Iterator[None]:
    """Keep ``.grad`` of the weights apart from the gradients that go from stage to stage.

    Autograd stores the first gradient of a weight as it is, even as a view of one that another stage has yet to use,
    and adds to it in place from then on.
    """
    fresh = [weight for weight in weights if weight.requires_grad and weight.grad is None]
    yield
    if not fresh:
        return
    passed_on = [*gradients, *(leaf.grad for leaf in inputs if leaf.grad is not None)]
    used = {gradient.untyped_storage().data_ptr() for gradient in passed_on}
    for weight in fresh:
        if weight.grad is not None:
            place = weight.grad.untyped_storage().data_ptr()
            if place in used:
                weight.grad = weight.grad.clone()
            used.add(place)
