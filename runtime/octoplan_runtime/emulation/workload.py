"""Layers that compute next to nothing: an emulated op sleeps for the time that the plan gives it."""

from __future__ import annotations

import torch
from torch import nn

from octoplan_runtime.workload import Workload
from octoplan_schemas import Plan, parse_word

_WIDTH = 4


class EmulatedLayer(nn.Module):
    """Scales its input; a layer that is not the first of its stage passes it on."""

    def __init__(self, *, is_first: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(_WIDTH)) if is_first else None

    def forward(self, hidden: torch.Tensor, *skips: torch.Tensor) -> torch.Tensor:
        """Take (samples, width) and skip tensors of the same shape."""
        if self.scale is None:
            return hidden
        scaled = hidden * self.scale
        return scaled + torch.stack(skips).sum(dim=0) if skips else scaled


def emulated_workload(plan: Plan) -> Workload:
    """Return such layers for a plan, with the skip edges that its programs have words for."""
    first_layers = {stage.layers[0] for stage in plan.stages}
    size = (plan.job.microbatches, _WIDTH)

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full(size, 1.0 + step), torch.ones(size)

    return Workload(
        plan.stages[-1].layers[1],
        lambda index: EmulatedLayer(is_first=index in first_layers),
        nn.functional.mse_loss,
        batch,
        _skips(plan),
    )


def _skips(plan: Plan) -> tuple[tuple[int, int], ...]:
    """One skip edge per pair of stages that talk across others: from a last layer to a first one."""
    words = [parse_word(word) for program in plan.programs for word in program if "SEND_F" in word]
    pairs = {(word.stage, word.other_stage) for word in words if word.peer is not None}
    pairs = {(source, destination) for source, destination in pairs if destination - source > 1}
    bounds = [stage.layers for stage in plan.stages]
    return tuple(sorted((bounds[a][1] - 1, bounds[b][0]) for a, b in pairs))
