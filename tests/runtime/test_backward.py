"""The split backward against ordinary autograd, on graphs of every shape."""

from __future__ import annotations

import itertools
import random
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from octoplan_runtime.backward import backward_fused, backward_input, backward_weight

WIDTH = 5


class RandomStage(nn.Module):
    """Random ops over tensors that depend on the inputs, on weights alone, or on both; weights are used at will."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        torch.manual_seed(seed)
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH, dtype=torch.float64) for _ in range(4))
        self.biases = nn.ParameterList(torch.randn(1, WIDTH, dtype=torch.float64) for _ in range(2))

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Give between one and three of the tensors."""
        rng = random.Random(self.seed)
        made = [*inputs, *self.weights, *self.biases]
        for _ in range(rng.randint(3, 9)):
            made += self.grow(rng, made)
        outputs = made[-rng.randint(1, 3) :]
        return [*outputs, made[rng.randrange(len(made))]]

    def grow(self, rng: random.Random, made: list[torch.Tensor]) -> list[torch.Tensor]:
        """Make one tensor, or the two outputs of one op."""
        first, second = rng.choice(made), rng.choice(made)
        kind = rng.randrange(7)
        if kind == 0:
            return self.halves(first, second)
        if kind == 1:
            return [first.reshape(-1).reshape(first.shape) + rng.choice(list(self.biases))]
        if kind == 2:
            hooked = torch.tanh(first)
            if hooked.requires_grad:
                hooked.register_hook(lambda gradient: 0.5 * gradient)
            return [hooked]
        if kind == 3:
            return [first.unsqueeze(0).expand(2, -1, -1).sum(dim=0)]
        if kind == 4:
            return [first * second.mean(dim=0)]
        return [torch.tanh(first @ (second if len(second) == WIDTH else rng.choice(list(self.weights))))]

    @staticmethod
    def halves(first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
        """A node of two outputs, one of which may be used by nobody."""
        both = torch.cat((first, second.mean(dim=0, keepdim=True).expand_as(first)), dim=-1)
        return list(both.chunk(2, dim=-1))


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


@pytest.mark.parametrize("seed", range(150))
def test_any_graph_gives_what_ordinary_autograd_gives(seed):
    """Two microbatches, their W after both I; then two fused on top, with gradients still in place."""
    module = RandomStage(seed)
    rng = random.Random(seed)
    weights = list(module.parameters())
    expected: dict[int, torch.Tensor] = {}
    works = []
    for number in range(4):
        batch = [torch.randn(rng.choice((1, 3)), WIDTH, dtype=torch.float64) for _ in range(2)]
        leaves = [tensor.requires_grad_() for tensor in batch]
        roots = [root for root in module(*leaves) if root.requires_grad]
        gradients = [torch.randn_like(root) for root in roots]
        given = [gradient.clone() for gradient in gradients]
        wanted = torch.autograd.grad(
            roots, [*leaves, *weights], gradients, retain_graph=True, allow_unused=True
        )
        for place, gradient in enumerate(wanted[2:]):
            if gradient is not None:
                expected[place] = expected.get(place, 0) + gradient
        if number < 2:
            works.append((backward_input(roots, gradients, leaves), leaves, wanted, gradients, given))
            continue
        if number == 2:
            for work, *_ in works:
                backward_weight(work, weights)
        backward_fused(roots, gradients, leaves, weights)
        works.append((None, leaves, wanted, gradients, given))
    for _, leaves, wanted, gradients, given in works:
        for found, right in zip(leaves, wanted, strict=False):
            same(found.grad, right)
        for found, right in zip(gradients, given, strict=True):
            same(found, right)
    for place, weight in enumerate(weights):
        same(weight.grad, expected.get(place))


def same(found, expected):
    """An absent gradient is not a zero one, except where autograd had a path of undefined gradients."""
    if expected is None or found is None:
        assert found is None or not found.any()
        assert expected is None or not expected.any()
        return
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


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
    work = backward_input([module(leaf)], [gradient], [leaf])
    torch.testing.assert_close(leaf.grad, expected_input, rtol=1e-12, atol=0)
    backward_weight(work, module.parameters())
    for parameter, expected in zip(module.parameters(), expected_weights, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=1e-14)


def test_weight_gradients_come_with_w_and_not_with_i():
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    leaf = torch.randn(2, WIDTH, requires_grad=True)
    work = backward_input([module(leaf)], [torch.ones(2, WIDTH)], [leaf])
    assert leaf.grad is not None
    assert all(parameter.grad is None for parameter in module.parameters())
    backward_weight(work, module.parameters())
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_without_inputs_w_does_the_whole_backward():
    module = nn.Linear(WIDTH, WIDTH)
    output = module(torch.randn(2, WIDTH))
    work = backward_input([output], [torch.ones(2, WIDTH)], [])
    assert module.bias.grad is None
    backward_weight(work, module.parameters())
    torch.testing.assert_close(module.bias.grad, torch.full((WIDTH,), 2.0))


def test_gradients_of_two_microbatches_add_up_without_touching_the_gradient_that_came_in():
    """A bias added to one sample has the incoming gradient itself as its gradient."""
    bias = nn.Parameter(torch.zeros(1, WIDTH))
    incoming = [torch.full((1, WIDTH), 1.0), torch.full((1, WIDTH), 10.0)]
    works = []
    for gradient in incoming:
        leaf = torch.zeros(1, WIDTH, requires_grad=True)
        works.append(backward_input([leaf + bias], [gradient], [leaf]))
    for work in works:
        backward_weight(work, [bias])
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
    backward_weight(backward_input(roots, gradients, [leaf]), weights)
    for found, wanted in zip([leaf, *weights], expected, strict=True):
        torch.testing.assert_close(found.grad, wanted, rtol=1e-12, atol=1e-14)


def test_nothing_that_requires_a_gradient_is_no_error():
    backward_fused([], [], [], [])
    backward_weight(backward_input([], [], []), [])


def test_a_checkpoint_recomputes_once_in_i_and_once_in_w():
    block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()
    weights = list(block.parameters())
    leaf = torch.randn(2, WIDTH, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(2, WIDTH, dtype=torch.float64)
    expected = torch.autograd.grad(block(leaf), [leaf, *weights], gradient)
    calls = []
    block[0].register_forward_pre_hook(lambda module, arguments: calls.append(1))
    output = checkpoint(block, leaf, use_reentrant=False)
    assert len(calls) == 1
    work = backward_input([output], [gradient], [leaf])
    assert len(calls) == 2
    backward_weight(work, weights)
    assert len(calls) == 3
    for found, wanted in zip([leaf, *weights], expected, strict=True):
        torch.testing.assert_close(found.grad, wanted, rtol=1e-12, atol=1e-14)


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
    work = backward_input([output], [torch.ones(2, WIDTH)], [leaf])
    del output
    assert any(reference() is not None for reference in saved)
    backward_weight(work, module.parameters())
    del work
    assert saved
    assert all(reference() is None for reference in saved)
