"""What each process of `test_features` does: one feature after another in one group, compared with a plain loop.

The plain loops here are written for the tests: they share layers with the runtime, and none of its code.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from octoplan_runtime import (
    ForwardMode,
    PipelineError,
    PipelineExecutor,
    add_loss,
    average_gradients,
    collected_losses,
)
from octoplan_runtime.progress import Progress
from octoplan_runtime.session import joined_group
from octoplan_schemas import InputError, Plan
from tests.runtime import plans

WIDTH = 6
NUM_TOKENS = 11
MICROBATCHES = 4
NUM_LAYERS = 6
Layer = Callable[[int], nn.Module]


def seeded(index: int, build: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(index)
        return build().to(dtype)


class Dense(nn.Module):
    def __init__(self, *, dropout: float = 0.0, recompute: bool = False, balance: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.recompute, self.balance = recompute, balance

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.recompute:
            result: torch.Tensor = checkpoint(self._run, hidden, use_reentrant=False)
            return result
        return self._run(hidden)

    def _run(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = self.dropout(torch.tanh(self.up(hidden)))
        if self.balance:
            add_loss(0.1 * inner.mean(dim=0).square().sum())
        return hidden + self.down(inner)


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(NUM_TOKENS, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(tokens, self.weight)


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(NUM_TOKENS, WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.weight.T


def plan_of(num_ranks: int, backward: tuple[str, ...] = ("I", "W")) -> Plan:
    """One stage per rank by 1F1B, the layers spread evenly."""
    cuts = [NUM_LAYERS * rank // num_ranks for rank in range(num_ranks + 1)]
    bounds = list(itertools.pairwise(cuts))
    order = plans.one_forward_one_backward(num_ranks, MICROBATCHES, backward)
    return plans.make_plan(bounds, list(range(num_ranks)), order, MICROBATCHES)


def folded_plan(num_ranks: int, backward: tuple[str, ...]) -> Plan:
    """Two stages per rank in a V: the first and the last layer share a rank."""
    bounds = [(0, 1), (1, 3), (3, 4), (4, 6)]
    ranks = [0, num_ranks - 1, num_ranks - 1, 0]
    order: list[plans.Op] = [(stage, "F", m) for stage in range(4) for m in range(MICROBATCHES)]
    for m in range(MICROBATCHES):
        order += [(stage, kind, m) for stage in reversed(range(4)) for kind in backward]
    return plans.make_plan(bounds, ranks, order, MICROBATCHES)


def vectors(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    size = 3 * MICROBATCHES
    return (
        torch.randn(size, WIDTH, generator=generator, dtype=torch.float64),
        torch.randn(size, WIDTH, generator=generator, dtype=torch.float64),
    )


def tokens(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(NUM_TOKENS, (3 * MICROBATCHES,), generator=generator)
    return ids, ids.roll(1)


def microbatches(batch: tuple[torch.Tensor, torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    yield from zip(*(tensor.chunk(MICROBATCHES) for tensor in batch), strict=True)


def run_layers(layers: list[nn.Module], hidden: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        hidden = layer(hidden)
    return hidden


def differences(executor: PipelineExecutor, layers: list[nn.Module], tolerance: float = 1e-12) -> list[str]:
    """Compare ``.grad`` of every own parameter with the plain loop's."""
    found = []
    for name, parameter in executor.named_parameters():
        _, index, path = name.split(".", 2)
        expected = layers[int(index)].get_parameter(path).grad
        assert expected is not None
        if parameter.grad is None:
            found.append(f"{name} has no gradient")
            continue
        error = (parameter.grad - expected).abs().max().item()
        if not error <= tolerance * expected.abs().max().item():
            found.append(f"{name} off by {error:.3g}")
    return found


def close(what: str, found: float, expected: float, tolerance: float = 1e-12) -> list[str]:
    return [] if abs(found - expected) <= tolerance * abs(expected) else [f"{what} {found}, not {expected}"]


def token_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, target)


def tied_layer(index: int) -> nn.Module:
    """The copies differ at first: they must be made equal."""
    build = {0: Table, NUM_LAYERS - 1: Head}.get(index, Dense)
    return seeded(index, build)


TIED = (("layers.0.weight", f"layers.{NUM_LAYERS - 1}.weight"),)


def check_tied(progress: Progress) -> dict[str, list[str]]:
    """On two ends of the pipeline, and on one rank; two steps without zeroing, then two with an optimizer."""
    num_ranks = dist.get_world_size()
    cases = {
        "tied, apart, fused": plan_of(num_ranks, ("B",)),
        "tied, apart, split": plan_of(num_ranks),
    }
    if num_ranks == 2:
        cases["tied, on one rank, fused"] = folded_plan(num_ranks, ("B",))
        cases["tied, on one rank, split"] = folded_plan(num_ranks, ("I", "W"))
    return {name: _check_tied(plan, progress) for name, plan in cases.items()}


def _check_tied(plan: Plan, progress: Progress) -> list[str]:
    executor = PipelineExecutor(plan, tied_layer, token_loss, tied=TIED, progress=progress)
    layers = [tied_layer(index) for index in range(NUM_LAYERS)]
    layers[-1].weight = layers[0].weight
    parameters = list({id(p): p for layer in layers for p in layer.parameters()}.values())
    optimizers = [torch.optim.SGD(group, lr=0.1) for group in (executor.parameters(), parameters)]
    complaints = []
    for step in range(4):
        batch = tokens(step)
        expected = torch.stack([token_loss(run_layers(layers, x), y) for x, y in microbatches(batch)]).mean()
        expected.backward()
        complaints += close(f"loss {step}", executor.step(*batch).item(), expected.item())
        complaints += differences(executor, layers)
        for optimizer in optimizers if step > 0 else []:
            optimizer.step()
            optimizer.zero_grad()
    holds_both = {0, NUM_LAYERS - 1} <= {
        layer for stage in plan.stages_of(executor.rank) for layer in range(*stage.layers)
    }
    if holds_both and len([n for n, _ in executor.named_parameters() if n in TIED[0]]) != 1:
        complaints.append("two copies on one rank")
    names = {f"layers.{index}.weight" for index in (0, NUM_LAYERS - 1)}
    held = {name for name in names if int(name.split(".")[1]) in _own_layers(executor)}
    if not held <= executor.state_dict().keys():
        complaints.append(f"the state lacks one of {sorted(held)}")
    return complaints


def _own_layers(executor: PipelineExecutor) -> set[int]:
    return {layer for stage in executor.plan.stages_of(executor.rank) for layer in range(*stage.layers)}


CROSSWISE = (
    ("layers.0.up.weight", "layers.5.up.weight"),
    ("layers.1.down.weight", "layers.4.down.weight"),
    ("layers.2.up.bias", "layers.3.up.bias", "layers.5.up.bias"),
)


def check_tied_crosswise(progress: Progress) -> dict[str, list[str]]:
    """Several groups, each between other ranks: a rank is in none, one or more of them."""
    executor = PipelineExecutor(
        plan_of(dist.get_world_size()),
        lambda index: seeded(index, Dense),
        nn.functional.mse_loss,
        tied=CROSSWISE,
        progress=progress,
    )
    layers = [seeded(index, Dense) for index in range(NUM_LAYERS)]
    for first, *others in (tuple(name.split(".")[1:] for name in group) for group in CROSSWISE):
        shared = layers[int(first[0])].get_parameter(".".join(first[1:]))
        for index, module, leaf in others:
            setattr(layers[int(index)].get_submodule(module), leaf, shared)
    expected = torch.stack(
        [nn.functional.mse_loss(run_layers(layers, x), y) for x, y in microbatches(vectors(0))]
    ).mean()
    expected.backward()
    found = close("loss", executor.step(*vectors(0)).item(), expected.item())
    return {"tied crosswise": found + differences(executor, layers)}


def check_recomputed(progress: Progress) -> dict[str, list[str]]:
    """Activation checkpointing inside stages, with dropout that must be replayed."""
    return {
        f"checkpointing, {'+'.join(kinds)}": _check_random(
            lambda index: seeded(index, lambda: Dense(dropout=0.5, recompute=index % 2 == 0)),
            plan_of(dist.get_world_size(), kinds),
            progress,
        )
        for kinds in (("B",), ("I", "W"))
    }


def check_dropout(progress: Progress) -> dict[str, list[str]]:
    return {
        "dropout": _check_random(
            lambda index: seeded(index, lambda: Dense(dropout=0.5)), plan_of(dist.get_world_size()), progress
        )
    }


def _check_random(layer: Layer, plan: Plan, progress: Progress) -> list[str]:
    """Every rank runs the same pipeline alone, in a group of one: another plan, the same masks."""
    mode = ForwardMode(seed=3)
    executor = PipelineExecutor(plan, layer, nn.functional.mse_loss, mode=mode, progress=progress)
    alone = _alone(layer, nn.functional.mse_loss, mode)
    complaints: list[str] = []
    losses = []
    for step in range(2):
        losses.append(executor.step(*vectors(0)).item())
        complaints += close(f"loss {step}", losses[-1], alone.step(*vectors(0)).item())
    if losses[0] == losses[1]:
        complaints.append("the same masks in two steps")
    layers = [alone.modules[0].layers[str(index)] for index in range(NUM_LAYERS)]
    return complaints + differences(executor, layers)


def _alone(layer: Layer, loss: Callable[..., torch.Tensor], mode: ForwardMode) -> PipelineExecutor:
    order: list[plans.Op] = [(0, kind, m) for m in reversed(range(MICROBATCHES)) for kind in "FB"]
    plan = plans.make_plan([(0, NUM_LAYERS)], [0], order, MICROBATCHES)
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return PipelineExecutor(plan, layer, loss, group=groups[dist.get_rank()], mode=mode)


def check_mixed_precision(progress: Progress) -> dict[str, list[str]]:
    def layer(index: int) -> nn.Module:
        return seeded(index, Dense, torch.float32)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(output, target.float())

    complaints = {}
    for name, inside in (("its own", True), ("the caller's", False)):
        mode = ForwardMode(autocast=torch.bfloat16) if inside else None
        context = contextlib.nullcontext() if inside else torch.autocast("cpu", dtype=torch.bfloat16)
        executor = PipelineExecutor(plan_of(dist.get_world_size()), layer, loss, mode=mode, progress=progress)
        layers = [layer(index) for index in range(NUM_LAYERS)]
        found: list[str] = []
        for step in range(2):
            inputs, targets = vectors(step)
            batch = inputs.float(), targets
            total = 0.0
            for x, y in microbatches(batch):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    value = loss(run_layers(layers, x), y) / MICROBATCHES
                value.backward()
                total += value.item()
            with context:
                found += close(f"loss {step}", executor.step(*batch).item(), total, 1e-5)
            found += differences(executor, layers, 1e-5)
        complaints[f"mixed precision by {name} autocast"] = found
    return complaints


def check_changed_precision(progress: Progress) -> dict[str, list[str]]:
    """Another dtype than agreed is an error where it arises, not garbage where it arrives."""

    def layer(index: int) -> nn.Module:
        return seeded(index, lambda: nn.Linear(WIDTH, WIDTH), torch.float32)

    folded = PipelineExecutor(
        folded_plan(1, ("B",)), layer, nn.functional.mse_loss, group=_own_group(), progress=progress
    )
    inputs, targets = (tensor.float() for tensor in vectors(0))
    folded.step(inputs, targets)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            folded.step(inputs, targets)
    except InputError as error:
        right = "layer 0 gave [3, 6] of torch.bfloat16 and had agreed on [3, 6] of torch.float32" in str(
            error
        )
        return {"changed precision": [] if right else [str(error)]}
    return {"changed precision": ["accepted"]}


def _own_group() -> dist.ProcessGroup:
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    group: dist.ProcessGroup = groups[dist.get_rank()]
    return group


def check_auxiliary(progress: Progress) -> dict[str, list[str]]:
    """Losses of inner layers, one of them recomputed."""

    def layer(index: int) -> nn.Module:
        return seeded(index, lambda: Dense(balance=index % 2 == 1, recompute=index == 3))

    complaints = {}
    for kinds in (("B",), ("I", "W")):
        executor = PipelineExecutor(
            plan_of(dist.get_world_size(), kinds), layer, nn.functional.mse_loss, progress=progress
        )
        layers = [layer(index) for index in range(NUM_LAYERS)]
        losses = []
        batch = vectors(0)
        for x, y in microbatches(batch):
            with collected_losses() as extra:
                loss = nn.functional.mse_loss(run_layers(layers, x), y)
            assert len(extra) == NUM_LAYERS // 2
            losses.append(loss + torch.stack(extra).sum())
        expected = torch.stack(losses).mean()
        expected.backward()
        found = close("loss", executor.step(*batch).item(), expected.item())
        executor.eval(batch[0])
        complaints[f"auxiliary losses, {'+'.join(kinds)}"] = found + differences(executor, layers)
    return complaints


def check_weighted(progress: Progress) -> dict[str, list[str]]:
    """The mean over all tokens that count, which differ in number from one microbatch to the next."""
    ignored = -100

    def layer(index: int) -> nn.Module:
        return seeded(index, Head if index == NUM_LAYERS - 1 else Dense)

    def count(targets: torch.Tensor) -> float:
        return float((targets != ignored).sum())

    executor = PipelineExecutor(
        plan_of(dist.get_world_size()), layer, token_loss, microbatch_weight=count, progress=progress
    )
    layers = [layer(index) for index in range(NUM_LAYERS)]
    inputs, targets = vectors(0)[0], tokens(0)[1]
    targets[: len(targets) // 3] = ignored
    targets[-1] = ignored
    targets[0] = 1
    expected = token_loss(run_layers(layers, inputs), targets)
    expected.backward()
    found = close("loss", executor.step(inputs, targets).item(), expected.item())
    return {"weighted by tokens": found + differences(executor, layers)}


def check_labels(progress: Progress) -> dict[str, list[str]]:
    """Labelled messages change nothing."""
    complaints = {}
    layers = [seeded(index, Dense) for index in range(NUM_LAYERS)]
    plan = plan_of(dist.get_world_size())
    executor = PipelineExecutor(
        plan, lambda i: seeded(i, Dense), nn.functional.mse_loss, labelled=True, progress=progress
    )
    batch = vectors(0)
    for x, y in microbatches(batch):
        (nn.functional.mse_loss(run_layers(layers, x), y) / MICROBATCHES).backward()
    executor.step(*batch)
    complaints["labelled"] = differences(executor, layers)
    return complaints


def check_receive_buffers(progress: Progress) -> dict[str, list[str]]:
    """As many buffers as the program has messages in use at once, step after step."""
    num_ranks = dist.get_world_size()
    plans_of = {f"1F1B, {'+'.join(kinds)}": plan_of(num_ranks, kinds) for kinds in (("B",), ("I", "W"))}
    if num_ranks == 2:
        plans_of["V"] = folded_plan(num_ranks, ("I", "W"))
    complaints = {}
    for name, plan in plans_of.items():
        executor = PipelineExecutor(
            plan, lambda i: seeded(i, Dense), nn.functional.mse_loss, progress=progress
        )
        message_bytes = 3 * WIDTH * 8
        expected = message_bytes * most_messages(plan.programs[executor.rank])
        for step in range(2):
            executor.step(*vectors(step))
        found = executor.receive_buffer_bytes
        complaints[f"receive buffers, {name}"] = (
            [] if found == expected else [f"{found} bytes instead of {expected}"]
        )
    return complaints


def most_messages(program: Sequence[str]) -> int:
    """Count what is received and not yet done with: autograd has saved it until B or W."""
    used, most = 0, 0
    received: dict[tuple[str, str], int] = {}
    for text in program:
        stage, kind, microbatch = text[0], text[1:-1].rstrip("0123456789"), text[-1]
        if kind.startswith("RECV"):
            used += 1
            received[stage, microbatch] = received.get((stage, microbatch), 0) + 1
        elif kind in ("B", "W"):
            used -= received.pop((stage, microbatch), 0)
        most = max(most, used)
    return most


def check_replicas(progress: Progress) -> dict[str, list[str]]:
    """Two pipelines of two ranks on the two dimensions of a mesh: the gradient of the mean over both batches."""
    if dist.get_world_size() != 4:
        return {}
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
    executor = PipelineExecutor(
        plan_of(2),
        lambda index: seeded(index, Dense),
        nn.functional.mse_loss,
        group=mesh.get_group("pipeline"),
        progress=progress,
    )
    layers = [seeded(index, Dense) for index in range(NUM_LAYERS)]
    for replica in range(2):
        inputs, targets = vectors(replica)
        (nn.functional.mse_loss(run_layers(layers, inputs), targets) / 2).backward()
    executor.step(*vectors(mesh.get_local_rank("data")))
    average_gradients(executor.parameters(), mesh.get_group("data"))
    return {"replicas": differences(executor, layers)}


def check_states(progress: Progress) -> dict[str, list[str]]:
    """A checkpoint written under one plan by several ranks loads under another."""
    folder = Path(os.environ["OCTOPLAN_TEST_FOLDER"])
    num_ranks = dist.get_world_size()
    first = PipelineExecutor(
        plan_of(num_ranks), lambda index: seeded(index, Dense), nn.functional.mse_loss, progress=progress
    )
    torch.save(first.state_dict(), folder / f"state-{num_ranks}-{first.rank}.pt")
    dist.barrier()
    state = {}
    for rank in range(num_ranks):
        state.update(torch.load(folder / f"state-{num_ranks}-{rank}.pt"))
    second = _alone(lambda index: seeded(index + 99, Dense), nn.functional.mse_loss, ForwardMode())
    second.load_state_dict(state)
    expected = run_layers([seeded(index, Dense) for index in range(NUM_LAYERS)], vectors(0)[0])
    found = second.eval(vectors(0)[0])
    return {"state": [] if torch.allclose(found, expected, rtol=1e-13, atol=0) else ["another output"]}


FEATURES = (
    check_tied,
    check_tied_crosswise,
    check_recomputed,
    check_dropout,
    check_mixed_precision,
    check_changed_precision,
    check_auxiliary,
    check_weighted,
    check_labels,
    check_receive_buffers,
    check_replicas,
    check_states,
)


def check_features(directory: str) -> None:
    """Run on every rank: check all features and write ``RANK.json``."""
    os.environ["OCTOPLAN_TEST_FOLDER"] = directory
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found: dict[str, list[str]] = {}
    progress = Progress()
    with joined_group(rank, num_ranks, 60.0, progress):
        for check in FEATURES:
            found.update(check(progress))
            progress.enter("the next feature")
    Path(directory, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def other_plans(directory: str) -> None:
    """Run on every rank: the last rank has another plan, and every rank says so."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    progress = Progress()
    dist.init_process_group("gloo", rank=rank, world_size=num_ranks)
    plan = plan_of(num_ranks, ("B",) if rank == num_ranks - 1 else ("I", "W"))
    try:
        PipelineExecutor(plan, lambda i: seeded(i, Dense), nn.functional.mse_loss, progress=progress)
        text = "accepted"
    except InputError as error:
        text = str(error)
    Path(directory, f"{rank}.json").write_text(json.dumps(text), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def swapped_messages(directory: str) -> None:
    """Run on two ranks: the first sends two microbatches in the wrong order, which no check of a plan lets pass."""
    progress = Progress()
    with joined_group(int(os.environ["RANK"]), 2, 20.0, progress):
        executor = PipelineExecutor(
            plan_of(2), lambda i: seeded(i, Dense), nn.functional.mse_loss, labelled=True, progress=progress
        )
        words = [str(word) for word in executor._program]
        if executor.rank == 0:
            executor._program.insert(words.index("0SEND_F1"), executor._program.pop(words.index("0SEND_F0")))
        try:
            executor.step(*vectors(0))
        except PipelineError as error:
            Path(directory, f"{executor.rank}.txt").write_text(str(error), encoding="utf-8")
            raise
