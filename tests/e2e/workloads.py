"""Workloads for ``--layers tests.e2e.workloads:FUNCTION``: three layers, and mishaps in the middle one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import torch
from torch import nn

from octoplan_runtime import Workload

NUM_LAYERS = 3
WIDTH = 4


class Middle(nn.Module):
    """A dense layer that does something else on a microbatch in training; shapes are found without gradients."""

    def __init__(self, mishap: Callable[[], None], microbatch: int = 1) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.mishap = mishap
        self.left = microbatch

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            if self.left == 0:
                self.mishap()
            self.left -= 1
        return torch.tanh(self.linear(hidden))


def _workload(middle: Callable[[], nn.Module], num_layers: int = NUM_LAYERS) -> Workload:
    def layer(index: int) -> nn.Module:
        torch.manual_seed(index)
        return middle() if index == 1 else nn.Linear(WIDTH, WIDTH)

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(step)
        return torch.randn(8, WIDTH, generator=generator), torch.randn(8, WIDTH, generator=generator)

    return Workload(num_layers, layer, nn.functional.mse_loss, batch)


def sound() -> Workload:
    return _workload(lambda: nn.Linear(WIDTH, WIDTH))


def _raise() -> None:
    raise ValueError("the middle layer\nhas had enough")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raising() -> Workload:
    return _workload(lambda: Middle(_raise))


def raising_in_four() -> Workload:
    return _workload(lambda: Middle(_raise), 4)


def killed() -> Workload:
    return _workload(lambda: Middle(_die))


def killed_in_four() -> Workload:
    return _workload(lambda: Middle(_die), 4)


def asleep() -> Workload:
    return _workload(lambda: Middle(lambda: time.sleep(3600)))


def unlike() -> Workload:
    """The layer that the pipeline builds differs from the one that the single process builds."""

    class Unlike(nn.Linear):
        def __init__(self) -> None:
            super().__init__(WIDTH, WIDTH)
            nn.init.constant_(self.weight, 1e-3 * (os.getpid() % 1000 + 1))

    return _workload(Unlike)


def diverged() -> Workload:
    """The loss is NaN."""
    sound_one = sound()
    return Workload(
        NUM_LAYERS, sound_one.layer, lambda output, target: output.sum() * float("nan"), sound_one.batch
    )


def not_a_workload() -> list[nn.Module]:
    return [nn.Linear(WIDTH, WIDTH)]


def broken() -> Workload:
    raise KeyError("no data")
