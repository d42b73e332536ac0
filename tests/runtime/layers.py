"""Small layers, among them every kind that a pipeline is known to get wrong."""

from __future__ import annotations

import random

import torch
from torch import nn

WIDTH = 6


def _with(hidden: torch.Tensor, skips: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return hidden + sum(torch.tanh(skip) for skip in skips) if skips else hidden


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, *skips):
        return torch.tanh(self.linear(_with(hidden, skips)))


class WeightUsedTwice(nn.Module):
    """The same weight before and after another one, with biases of its own: torch's split gets this wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first_bias = nn.Parameter(torch.randn(WIDTH))
        self.between = nn.Linear(WIDTH, WIDTH)
        self.second_bias = nn.Parameter(torch.randn(WIDTH))
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, hidden, *skips):
        hidden = torch.tanh(nn.functional.linear(_with(hidden, skips), self.weight, self.first_bias))
        hidden = torch.tanh(self.between(hidden))
        return torch.tanh(nn.functional.linear(hidden, self.weight, self.second_bias))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def forward(self, hidden, *skips):
        return torch.tanh(self.linear(_with(hidden, skips)))


class NoParameters(nn.Module):
    def forward(self, hidden, *skips):
        hidden = _with(hidden, skips)
        return hidden * torch.sigmoid(hidden)


class PassThrough(nn.Module):
    """Returns its very input."""

    def forward(self, hidden, *skips):
        return _with(hidden, skips)


class View(nn.Module):
    """Its output is a view of something larger."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, hidden, *skips):
        return self.linear(_with(hidden, skips))[:, WIDTH:]


class Position(nn.Module):
    """Adds a table whose gradient is the incoming gradient itself where the microbatch has one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, WIDTH))
        self.second_table = nn.Parameter(torch.randn(1, WIDTH))

    def forward(self, hidden, *skips):
        return _with(hidden, skips) + self.table + self.second_table


class Unused(nn.Module):
    """Has a weight that takes no part, and one that the input does not lead past."""

    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Parameter(torch.randn(WIDTH))
        self.scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, hidden, *skips):
        return torch.cat((_with(hidden, skips), (self.scale**2).expand(len(hidden), -1)), dim=-1)[:, ::2]


class Fork(nn.Module):
    """Gives two tensors with gradients and one of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, *skips):
        hidden = torch.tanh(self.linear(_with(hidden, skips)))
        return hidden, hidden.square(), torch.arange(WIDTH, device=hidden.device).expand(len(hidden), -1)


class Join(nn.Module):
    """Takes what `Fork` gives."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WIDTH, 1)

    def forward(self, left, right, numbers, *skips):
        return _with(left - 0.5 * right + self.table(numbers).squeeze(-1), skips)


class Tokens(nn.Module):
    """Integer inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, WIDTH)

    def forward(self, tokens):
        return self.table(tokens)


class DataDependent(nn.Module):
    """Cannot run on the meta device: its inner shapes depend on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, *skips):
        hidden = _with(hidden, skips)
        rows = (hidden[:, 0] > 0).nonzero().squeeze(-1)
        return hidden.index_add(0, rows, torch.tanh(self.linear(hidden[rows])))


KINDS = (
    Dense,
    WeightUsedTwice,
    Frozen,
    NoParameters,
    PassThrough,
    View,
    Position,
    Unused,
    DataDependent,
)


def random_kinds(rng: random.Random, num_layers: int) -> list[type[nn.Module]]:
    """Draw a chain: tokens first, a pair of `Fork` and `Join` somewhere, anything else between."""
    kinds: list[type[nn.Module]] = [Tokens, *(rng.choice(KINDS) for _ in range(num_layers - 1))]
    if num_layers >= 4 and rng.random() < 0.5:
        place = rng.randrange(1, num_layers - 2)
        kinds[place : place + 2] = [Fork, Join]
    return kinds


def random_skips(rng: random.Random, kinds: list[type[nn.Module]]) -> list[tuple[int, int]]:
    """Draw up to two skip edges; a layer of several outputs feeds none."""
    pairs = [
        (source, destination)
        for destination in range(2, len(kinds))
        for source in range(destination - 1)
        if kinds[source] is not Fork
    ]
    return sorted(rng.sample(pairs, min(len(pairs), rng.randint(0, 2))))


def build(kinds: list[type[nn.Module]], index: int, seed: int, dtype: torch.dtype) -> nn.Module:
    """Build one layer, the same on every rank."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1000 * seed + index)
        return kinds[index]().to(dtype)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Weight every sample by its target."""
    return (output.square().mean(dim=-1) * target).sum()
