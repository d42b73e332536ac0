"""How a forward runs: under autocast or not, and from which random state; the same in a pipeline and in one process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

#: Gives the random state in which a layer's forward runs.
RandomState = Callable[[int], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class ForwardMode:
    """Mixed precision and reproducible randomness.

    Attributes
    ----------
    autocast:
        Type that `torch.autocast` computes in, for layers and loss; None for the types of the parameters.
    seed:
        The random state of a layer's forward follows from (seed, step, layer, microbatch) alone, so that dropout
        is the same under every plan; None leaves the process's random state as it is.
    """

    autocast: torch.dtype | None = None
    seed: int | None = None

    def precision(self, device: torch.device) -> AbstractContextManager[None]:
        """Return the context in which layers and loss run."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.autocast)

    def randomness(self, step: int, microbatch: int, device: torch.device) -> RandomState | None:
        """Return what gives each layer its random state, None to leave it alone."""
        if self.seed is None:
            return None
        return lambda layer: _seeded(f"{self.seed},{step},{layer},{microbatch}", device)


class _seeded:  # noqa: N801 - reads as a statement: with _seeded(key, device)
    """Draw from a state that follows from a key, and put the state back."""

    def __init__(self, key: str, device: torch.device) -> None:
        digest = hashlib.blake2b(key.encode("ascii"), digest_size=8).digest()
        self._seed = int.from_bytes(digest, "big") >> 1
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[device.index or 0])

    def __enter__(self) -> None:
        # Not torch.random.fork_rng, which takes fifty times as long, in every layer of every forward.
        self._before = [generator.get_state() for generator in self._generators]
        for generator in self._generators:
            generator.manual_seed(self._seed)

    def __exit__(self, *error: object) -> None:
        for generator, state in zip(self._generators, self._before, strict=True):
            generator.set_state(state)
