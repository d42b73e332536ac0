"""What each process of the multi-process tests does: run plans, compare with a plain loop, write down what differs.

The reference here is a loop over layers written for the tests; it shares no code with the runtime.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from octoplan_runtime import PipelineExecutor
from octoplan_runtime.progress import Progress
from octoplan_runtime.session import joined_group
from octoplan_schemas import Plan, load
from tests.runtime import layers, plans

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
STEPS = 2


@dataclass(frozen=True)
class Case:
    """One plan with its layers and data."""

    name: str
    plan: Plan
    kinds: list[type[nn.Module]]
    skips: list[tuple[int, int]]
    seed: int
    dtype: torch.dtype
    microbatch_size: int

    def layer(self, index: int) -> nn.Module:
        return layers.build(self.kinds, index, self.seed, self.dtype)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed + step)
        size = self.plan.job.microbatches * self.microbatch_size
        if self.kinds[0] is layers.Tokens:
            inputs = torch.randint(11, (size,), generator=generator)
        else:
            inputs = torch.randn(size, layers.WIDTH, generator=generator, dtype=self.dtype)
        return inputs, torch.rand(size, generator=generator, dtype=self.dtype)


class Reference:
    """The whole model in a plain loop."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.layers = [case.layer(index) for index in range(len(case.kinds))]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: list[tuple[torch.Tensor, ...]] = []
        last: tuple[torch.Tensor, ...] = (inputs,)
        for index, layer in enumerate(self.layers):
            extra = [outputs[source][0] for source, destination in self.case.skips if destination == index]
            value = layer(*last, *extra)
            last = value if isinstance(value, tuple) else (value,)
            outputs.append(last)
        return last[0]

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        num_microbatches = self.case.plan.job.microbatches
        losses = [
            layers.loss_of(self.forward(x), y)
            for x, y in zip(inputs.chunk(num_microbatches), targets.chunk(num_microbatches), strict=True)
        ]
        mean = torch.stack(losses).mean()
        mean.backward()
        return mean.item()

    def gradients(self) -> dict[str, torch.Tensor]:
        return {
            f"layers.{index}.{name}": torch.zeros_like(parameter)
            if parameter.grad is None
            else parameter.grad
            for index, layer in enumerate(self.layers)
            for name, parameter in layer.named_parameters()
        }


def random_case(seed: int, num_ranks: int) -> Case:
    """Draw a plan, layers and data from a seed."""
    rng = random.Random(seed)
    num_layers = rng.randint(max(num_ranks, 3), 9)
    kinds = layers.random_kinds(rng, num_layers)
    skips = layers.random_skips(rng, kinds)
    plan = plans.random_plan(rng, num_layers, num_ranks, skips)
    dtype = rng.choice((torch.float32, torch.float64))
    return Case(f"random plan of seed {seed}", plan, kinds, skips, seed, dtype, rng.choice((1, 3)))


def check_cases(cases: Callable[[int], Iterable[Case]], directory: str) -> None:
    """Run on every rank: check all cases and write ``RANK.json`` with one line per complaint."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found: dict[str, list[str]] = {}
    progress = Progress()
    with joined_group(rank, num_ranks, 60.0, progress):
        for case in cases(num_ranks):
            found[case.name] = check_case(case, progress)
    Path(directory, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def check_case(case: Case, progress: Progress) -> list[str]:
    """Two steps without zeroing gradients, an evaluation, and the names of the state."""
    executor = PipelineExecutor(case.plan, case.layer, layers.loss_of, skips=case.skips, progress=progress)
    reference = Reference(case)
    complaints: list[str] = []
    for step in range(STEPS):
        inputs, targets = case.batch(step)
        expected = reference.step(inputs, targets)
        loss = executor.step(inputs, targets).item()
        if abs(loss - expected) > TOLERANCE[case.dtype] * abs(expected):
            complaints.append(f"step {step}: loss {loss}, expected {expected}")
        complaints += [f"step {step}: {line}" for line in compare_gradients(case, executor, reference)]
    complaints += compare_evaluation(case, executor, reference)
    own = {index for stage in case.plan.stages_of(executor.rank) for index in range(*stage.layers)}
    expected_names = {name for name in reference.gradients() if int(name.split(".")[1]) in own}
    if set(executor.state_dict()) != expected_names:
        complaints.append(f"state names {sorted(executor.state_dict())}, expected {sorted(expected_names)}")
    return complaints


def compare_gradients(case: Case, executor: PipelineExecutor, reference: Reference) -> list[str]:
    expected = reference.gradients()
    complaints = []
    for name, parameter in executor.named_parameters():
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        scale = expected[name].abs().max().item()
        error = (found - expected[name]).abs().max().item()
        if not error <= TOLERANCE[case.dtype] * scale:
            complaints.append(f"gradient of {name} off by {error:.3g} of {scale:.3g}")
    return complaints


def compare_evaluation(case: Case, executor: PipelineExecutor, reference: Reference) -> list[str]:
    inputs, _ = case.batch(STEPS)
    found = executor.eval(inputs if 0 in executor.modules else None)
    holds_last = case.plan.stages[-1].rank == executor.rank
    if (found is not None) != holds_last:
        return [f"eval returned {type(found).__name__}"]
    if not isinstance(found, torch.Tensor):
        return []
    with torch.no_grad():
        expected = reference.forward(inputs)
    error = (found - expected).abs().max().item()
    return (
        [] if error <= TOLERANCE[case.dtype] * expected.abs().max().item() else [f"eval off by {error:.3g}"]
    )


def random_cases(num_ranks: int) -> list[Case]:
    """The fixed sample of random plans that every run of the tests checks."""
    return [random_case(100 * num_ranks + number, num_ranks) for number in range(NUM_RANDOM)]


NUM_RANDOM = 60


def compiled_cases(folder: str, num_ranks: int) -> list[Case]:
    """The plans that the compiler has left in a folder."""
    cases = []
    for path in sorted(Path(folder).glob("*.plan.json")):
        plan = load(path, Plan)
        assert plan.num_ranks == num_ranks
        kinds = [layers.Tokens, *([layers.Dense] * (plan.stages[-1].layers[1] - 1))]
        cases.append(Case(path.name, plan, kinds, [], 11, torch.float64, 1))
    return cases


def named_cases(num_ranks: int) -> list[Case]:
    """Hand-made plans, each fused and split, in both dtypes."""
    cases = []
    for backward in (("B",), ("I", "W")):
        for dtype in (torch.float32, torch.float64):
            for name, bounds, ranks, order in _orders(num_ranks, backward):
                num_microbatches = 1 + max(microbatch for *_, microbatch in order)
                kinds = [layers.Tokens, *([layers.Dense] * (bounds[-1][1] - 1))]
                plan = plans.make_plan(bounds, ranks, order, num_microbatches)
                label = f"{name}, {'+'.join(backward)}, {dtype}"
                cases.append(Case(label, plan, kinds, [], 7, dtype, 2))
    return cases


def _orders(
    num_ranks: int, backward: Sequence[str]
) -> list[tuple[str, list[tuple[int, int]], list[int], list[plans.Op]]]:
    last = num_ranks - 1
    single = [(stage, stage + 1) for stage in range(num_ranks)]
    double = [(stage, stage + 1) for stage in range(2 * num_ranks)]
    uneven = [
        (0, 1),
        *((stage + 2, stage + 3) for stage in range(-1, 2 * last)),
        (2 * last + 2, 2 * last + 4),
    ]
    return [
        ("1F1B", single, list(range(num_ranks)), plans.one_forward_one_backward(num_ranks, 5, backward)),
        ("GPipe", single, list(range(num_ranks)), _all_forward_first(num_ranks, range(4), backward)),
        (
            "last stage's forwards out of order",
            single,
            list(range(num_ranks)),
            _all_forward_first(num_ranks, (2, 0, 3, 1), backward),
        ),
        (
            "loop of two stages a rank",
            double,
            [*range(num_ranks), *range(num_ranks)],
            _all_forward_first(2 * num_ranks, range(3), backward),
        ),
        (
            "V with neighbours on the last rank",
            double,
            [*range(num_ranks), *reversed(range(num_ranks))],
            _all_forward_first(2 * num_ranks, range(3), backward),
        ),
        (
            "unequal stages per rank",
            uneven,
            [*([0] * (len(uneven) - last)), *range(1, num_ranks)],
            _all_forward_first(len(uneven), range(3), backward),
        ),
    ]


def _all_forward_first(
    num_stages: int, microbatches: Sequence[int], backward: Sequence[str]
) -> list[plans.Op]:
    """Forward in the given order of microbatches, then backward in ascending order, W deferred to the very end."""
    order: list[plans.Op] = [(stage, "F", m) for stage in range(num_stages) for m in microbatches]
    for m in sorted(microbatches):
        order += [(stage, backward[0], m) for stage in reversed(range(num_stages))]
    for m in sorted(microbatches):
        order += [(stage, kind, m) for stage in range(num_stages) for kind in backward[1:]]
    return order


def other_data_parallel_half(directory: str) -> None:
    """Run on four ranks: two pipelines of two ranks side by side, each in a process group of its own."""
    rank = int(os.environ["RANK"])
    progress = Progress()
    with joined_group(rank, 4, 60.0, progress):
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        case = named_cases(2)[rank // 2]
        executor = PipelineExecutor(case.plan, case.layer, layers.loss_of, group=groups[rank // 2])
        reference = Reference(case)
        inputs, targets = case.batch(0)
        reference.step(inputs, targets)
        executor.step(inputs, targets)
        found = {case.name: compare_gradients(case, executor, reference)}
    Path(directory, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
