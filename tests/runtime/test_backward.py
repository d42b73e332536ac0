"""The split backward against ordinary autograd, where torch's own is known to go wrong."""

from __future__ import annotations

import itertools
import weakref

import pytest
import torch
from torch import nn

from octoplan_runtime.backward import backward_fused, backward_input

WIDTH = 5


class SharedWeight(nn.Module):
    """One weight on both sides of another, each use with its own bias; parameters in a given order."""

    def __init__(self, order: tuple[str, ...]) -> None:
        super().__init__()
        shapes = {"shared": (WIDTH, WIDTH), "first": (WIDTH,), "second": (WIDTH,), "between": (WIDTH, WIDTH)}
        for name in order:
            setattr(self, name, nn.Parameter(torch.randn(shapes[name], dtype=torch.float64)))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(nn.functional.linear(hidden, self.shared, self.first))
        hidden = torch.tanh(nn.functional.linear(hidden, self.between))
        return torch.tanh(nn.functional.linear(hidden, self.shared, self.second))


def expected_gradients(module, inputs, gradient):
    leaf = inputs.clone().requires_grad_()
    gradients = torch.autograd.grad(module(leaf), [leaf, *module.parameters()], gradient)
    return gradients[0], gradients[1:]


@pytest.mark.parametrize("order", list(itertools.permutations(("shared", "first", "second", "between"))))
def test_a_weight_used_twice_is_counted_once_a_use_in_any_order_of_parameters(order):
    torch.manual_seed(0)
    module = SharedWeight(order)
    inputs, gradient = torch.randn(3, WIDTH, dtype=torch.float64), torch.randn(3, WIDTH, dtype=torch.float64)
    expected_input, expected_weights = expected_gradients(module, inputs, gradient)
    leaf = inputs.clone().requires_grad_()
    work = backward_input([module(leaf)], [gradient], [leaf], list(module.parameters()))
    torch.testing.assert_close(leaf.grad, expected_input, rtol=1e-12, atol=0)
    work()
    for parameter, expected in zip(module.parameters(), expected_weights, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=1e-14)


def test_weight_gradients_come_with_w_and_not_with_i():
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    leaf = torch.randn(2, WIDTH, requires_grad=True)
    work = backward_input([module(leaf)], [torch.ones(2, WIDTH)], [leaf], list(module.parameters()))
    assert leaf.grad is not None
    assert all(parameter.grad is None for parameter in module.parameters())
    work()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_without_inputs_w_does_the_whole_backward():
    module = nn.Linear(WIDTH, WIDTH)
    output = module(torch.randn(2, WIDTH))
    work = backward_input([output], [torch.ones(2, WIDTH)], [], list(module.parameters()))
    assert module.bias.grad is None
    work()
    torch.testing.assert_close(module.bias.grad, torch.full((WIDTH,), 2.0))


def test_gradients_of_two_microbatches_add_up_without_touching_the_gradient_that_came_in():
    """A bias added to one sample has the incoming gradient itself as its gradient."""
    bias = nn.Parameter(torch.zeros(1, WIDTH))
    incoming = [torch.full((1, WIDTH), 1.0), torch.full((1, WIDTH), 10.0)]
    works = []
    for gradient in incoming:
        leaf = torch.zeros(1, WIDTH, requires_grad=True)
        works.append(backward_input([leaf + bias], [gradient], [leaf], [bias]))
    for work in works:
        work()
    torch.testing.assert_close(bias.grad, torch.full((1, WIDTH), 11.0))
    torch.testing.assert_close(incoming[0], torch.full((1, WIDTH), 1.0))


def test_an_output_that_a_later_layer_has_saved_can_be_a_root():
    """As with a skip edge out of the middle of a stage."""
    first, second = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()
    weights = [*first.parameters(), *second.parameters()]
    leaf = torch.randn(2, WIDTH, dtype=torch.float64, requires_grad=True)
    middle = first(leaf)
    roots = [middle, second(middle)]
    gradients = [torch.randn(2, WIDTH, dtype=torch.float64) for _ in roots]
    expected = torch.autograd.grad(roots, [leaf, *weights], gradients, retain_graph=True)
    backward_input(roots, gradients, [leaf], weights)()
    for found, wanted in zip([leaf, *weights], expected, strict=True):
        torch.testing.assert_close(found.grad, wanted, rtol=1e-12, atol=1e-14)


def test_nothing_that_requires_a_gradient_is_no_error():
    backward_fused([], [])
    backward_input([], [], [], [])()


def test_w_lets_go_of_what_the_forward_saved():
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    saved: list[weakref.ref[torch.Tensor]] = []

    def keep_track(tensor):
        packed = tensor.detach()
        saved.append(weakref.ref(packed))
        return packed

    leaf = torch.randn(2, WIDTH, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep_track, lambda tensor: tensor):
        output = module(leaf)
    work = backward_input([output], [torch.ones(2, WIDTH)], [leaf], list(module.parameters()))
    del output
    assert any(reference() is not None for reference in saved)
    work()
    del work
    assert saved
    assert all(reference() is None for reference in saved)
