"""What is live after every op, counted tensor by tensor, against what the simulator says (contract, section 4.4)."""

from __future__ import annotations

import gc
import random
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import octoplan
from octoplan.simulator import Simulation
from octoplan_runtime import PipelineExecutor
from octoplan_runtime.progress import Progress
from octoplan_schemas import Plan
from tests.runtime import plans

MICROBATCHES = 4
NUM_STAGES = 3
WIDTH = 5


class Counted(nn.Module):
    """Saves one tensor of its own per microbatch, between two weights, which is counted while it lives."""

    def __init__(self, stage: int, live: dict[int, int]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.stage, self.live = stage, live

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden * self.scale
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.value):
            hidden = torch.sin(hidden)
        return self.linear(hidden)

    def _pack(self, tensor: torch.Tensor) -> Saved:
        saved = Saved(tensor.detach())
        self.live[self.stage] += 1
        weakref.finalize(saved, self._drop)
        return saved

    def _drop(self) -> None:
        self.live[self.stage] -= 1


class Saved:
    """What autograd keeps in place of a tensor."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Recorder(Progress):
    """Notes how many saved tensors of each stage live at the end of every op."""

    def __init__(self, live: dict[int, int]) -> None:
        super().__init__()
        self.live = live
        self.after: dict[str, dict[int, int]] = {}

    def enter(self, word: str) -> None:
        self.after[self.word] = dict(self.live)
        super().enter(word)


def expected_live(program: list[str]) -> dict[str, dict[int, int]]:
    """A microbatch's activations live from its F to the end of its B, or of its W when the backward is split."""
    live, after = dict.fromkeys(range(NUM_STAGES), 0), {}
    for word in program:
        stage, kind = int(word[0]), word[1]
        live[stage] += {"F": 1, "I": 0, "W": -1, "B": -1}[kind]
        after[word] = dict(live)
    return after


def plan_with_sizes(seed: int) -> Plan:
    """A random order on one rank, with one byte of activations per microbatch and stage."""
    bounds = [(stage, stage + 1) for stage in range(NUM_STAGES)]
    order = plans.random_order(random.Random(seed), bounds, MICROBATCHES, [], 0.5)
    document = plans.make_plan(bounds, [0] * NUM_STAGES, order, MICROBATCHES).to_document()
    cost = dict.fromkeys(("forward_s", "backward_input_s", "backward_weight_s", "backward_s"), 1.0)
    sizes = {"activation_bytes": 1, "retained_bytes": 1, "weight_stash_bytes": 0, "workspace_bytes": 0}
    document["predicted"]["stages"] = [{**cost, **sizes}] * NUM_STAGES
    document["predicted"]["ranks"] = [{"busy_s": 0, "peak_bytes": 0, "state_bytes": 0}]
    return Plan.from_document(document)


def counted_within_ops(plan: Plan, recorder: Recorder) -> list[int]:
    """What lives while an op runs: what the one before has left, and of a forward what it saves itself."""
    counted, before = [], 0
    for word in plan.programs[0]:
        counted.append(before + ("F" in word))
        before = sum(recorder.after[word].values())
    return counted


def simulated_within_ops(simulation: Simulation) -> list[float]:
    """The simulator's curve in the middle of every op."""
    times, values = simulation.memory_curves()[0]
    middles = (simulation.start_s + simulation.end_s) / 2
    return values[np.searchsorted(times, middles, side="right") - 1].tolist()


@pytest.mark.parametrize("seed", range(8))
def test_saved_tensors_live_as_long_as_the_simulator_says(seed):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    gc.disable()
    try:
        plan = plan_with_sizes(seed)
        live = dict.fromkeys(range(NUM_STAGES), 0)
        recorder = Recorder(live)
        executor = PipelineExecutor(
            plan, lambda stage: Counted(stage, live), nn.functional.mse_loss, progress=recorder
        )
        inputs = torch.randn(2 * MICROBATCHES, WIDTH)
        executor.step(inputs, inputs)
        expected = expected_live(list(plan.programs[0]))
        assert {word: recorder.after[word] for word in expected} == expected
        simulation = octoplan.simulate(plan)
        peak = max(sum(counts.values()) for counts in recorder.after.values())
        assert peak == simulation.memory.peak_bytes[0]
        assert counted_within_ops(plan, recorder) == simulated_within_ops(simulation)
        assert live == dict.fromkeys(range(NUM_STAGES), 0)
    finally:
        gc.enable()
        dist.destroy_process_group()
