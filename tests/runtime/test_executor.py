"""`PipelineExecutor` in a group of one process: several stages on one rank, and what it refuses."""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from octoplan_runtime import PipelineError, PipelineExecutor
from octoplan_runtime.progress import Progress
from octoplan_schemas import InputError
from tests.runtime import layers, plans
from tests.runtime.pipeline_cases import Case, check_case, random_case

MICROBATCHES = 4


@pytest.fixture(autouse=True)
def group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def plan_of(num_stages, backward=("I", "W"), order=None):
    bounds = [(stage, stage + 1) for stage in range(num_stages)]
    chosen = order or [
        *((stage, "F", m) for stage in range(num_stages) for m in range(MICROBATCHES)),
        *(
            (stage, kind, m)
            for stage in reversed(range(num_stages))
            for m in range(MICROBATCHES)
            for kind in backward
        ),
    ]
    return plans.make_plan(bounds, [0] * num_stages, chosen, MICROBATCHES)


def dense(index):
    torch.manual_seed(index)
    return layers.Dense()


def batch(size=8):
    return torch.randn(size, layers.WIDTH), torch.rand(size)


@pytest.mark.parametrize("seed", range(20))
def test_every_stage_on_one_rank(seed):
    case = random_case(1000 + seed, 1)
    assert check_case(case, Progress()) == []


def test_losses_belong_to_their_microbatch_whatever_the_order():
    """Targets that weigh microbatches differently: a loss paired with another's gradient would show."""
    rng = random.Random(5)
    bounds = [(0, 1), (1, 2), (2, 3)]
    for seed in range(5):
        order = plans.random_order(rng, bounds, MICROBATCHES, [], 0.5)
        plan = plans.make_plan(bounds, [0, 0, 0], order, MICROBATCHES)
        case = Case(
            "random order", plan, [layers.Tokens, layers.Dense, layers.Dense], [], seed, torch.float64, 2
        )
        assert check_case(case, Progress()) == []


def test_a_batch_that_cannot_be_cut_is_refused():
    executor = PipelineExecutor(plan_of(2), dense, layers.loss_of)
    with pytest.raises(InputError, match="inputs: 7 samples cannot be cut into 4 equal microbatches"):
        executor.step(*batch(7))
    with pytest.raises(InputError, match="need targets on this rank"):
        executor.step(batch()[0])


def test_microbatches_of_another_shape_are_refused_after_the_first_step():
    executor = PipelineExecutor(plan_of(2), dense, layers.loss_of)
    executor.step(*batch(8))
    with pytest.raises(InputError, match="shapes are agreed once"):
        executor.step(*batch(12))
    executor.step(*batch(8))


def test_a_plan_for_more_ranks_than_the_group_is_refused():
    plan = plans.make_plan([(0, 1), (1, 2)], [0, 1], plans.one_forward_one_backward(2, 2), 2)
    with pytest.raises(InputError, match="the plan is for 2 ranks, but the process group has 1"):
        PipelineExecutor(plan, dense, layers.loss_of)


def test_an_invalid_plan_is_refused():
    plan = plans.plan_document([(0, 1)], [0], [["0F0", "0B0", "0B0"]], 1)
    with pytest.raises(InputError, match="0B0 occurs twice"):
        PipelineExecutor(plan, dense, layers.loss_of)


@pytest.mark.parametrize("given", [1, 3])
def test_another_number_of_layers_is_refused(given):
    with pytest.raises(InputError, match=f"the plan is for 2 layers, but {given} are given"):
        PipelineExecutor(plan_of(2), [dense(index) for index in range(given)], layers.loss_of)


@pytest.mark.parametrize("make", [list, tuple, nn.ModuleList, lambda given: nn.Sequential(*given)])
def test_layers_may_be_any_list(make):
    inputs, targets = batch()
    expected = PipelineExecutor(plan_of(2), dense, layers.loss_of).step(inputs, targets)
    executor = PipelineExecutor(plan_of(2), make([dense(0), dense(1)]), layers.loss_of)
    assert torch.equal(executor.step(inputs, targets), expected)


def sharded(stage):
    return fully_shard(stage, mesh=dist.init_device_mesh("cpu", (1,)))


@pytest.mark.parametrize(
    ("wrap", "tied", "expected"),
    [
        (lambda stage: None, (), "wrap: must return a module, not NoneType"),
        (lambda stage: DistributedDataParallel(stage, static_graph=True), (), "with static_graph"),
        (
            sharded,
            [("layers.0.linear.weight", "layers.1.linear.weight")],
            "tied: parameters that fully_shard",
        ),
    ],
)
def test_a_wrap_that_a_pipeline_cannot_drive_is_refused(wrap, tied, expected):
    with pytest.raises(InputError, match=expected):
        PipelineExecutor(plan_of(2), dense, layers.loss_of, wrap=wrap, tied=tied)


def test_what_wrap_returns_is_called_in_training_and_in_evaluation():
    calls = []

    class Noting(nn.Module):
        def __init__(self, stage):
            super().__init__()
            self.stage = stage

        def forward(self, received, randomness):
            calls.append(torch.is_grad_enabled())
            return self.stage(received, randomness)

    executor = PipelineExecutor(plan_of(2), dense, layers.loss_of, wrap=Noting)
    inputs, targets = batch()
    executor.step(inputs, targets)
    assert calls == [True] * 2 * MICROBATCHES
    executor.eval(inputs)
    assert calls[2 * MICROBATCHES :] == [False] * 2 * MICROBATCHES
    assert set(executor.state_dict()) == set(PipelineExecutor(plan_of(2), dense, layers.loss_of).state_dict())


def test_a_loss_must_be_one_number():
    executor = PipelineExecutor(plan_of(2), dense, lambda output, target: output)
    with pytest.raises(InputError, match="must be one number, not of shape"):
        executor.step(*batch())


def test_an_error_names_rank_and_op_and_the_next_step_is_sound():
    class Moody(layers.Dense):
        angry = False

        def forward(self, hidden, *skips):
            if self.angry and torch.is_grad_enabled():
                raise ValueError("not today")
            return super().forward(hidden, *skips)

    moody = Moody()
    executor = PipelineExecutor(plan_of(2), [dense(0), moody], layers.loss_of)
    inputs, targets = batch()
    expected = executor.step(inputs, targets)
    moody.angry = True
    with pytest.raises(PipelineError, match="rank 0 failed in 1F0: ValueError: not today") as caught:
        executor.step(inputs, targets)
    assert (caught.value.rank, caught.value.word) == (0, "1F0")
    assert isinstance(caught.value.__cause__, ValueError)
    moody.angry = False
    assert torch.equal(executor.step(inputs, targets), expected)


def test_state_written_under_one_plan_loads_under_another():
    first = PipelineExecutor(plan_of(3), dense, layers.loss_of)
    two_stages = plans.make_plan(
        [(0, 1), (1, 3)],
        [0, 0],
        [(0, "F", 0), (1, "F", 0), (1, "B", 0), (0, "B", 0)],
        1,
    )
    second = PipelineExecutor(two_stages, lambda index: dense(index + 50), layers.loss_of)
    state = first.state_dict()
    assert set(state) == {
        f"layers.{index}.linear.{name}" for index in range(3) for name in ("weight", "bias")
    }
    second.load_state_dict({**state, "layers.9.linear.weight": torch.zeros(1)})
    inputs = torch.randn(4, layers.WIDTH)
    torch.testing.assert_close(first.eval(inputs), second.eval(inputs))
    del state["layers.2.linear.bias"]
    with pytest.raises(InputError, match=r"the state has no 'layers\.2\.linear\.bias', which stage 1 needs"):
        second.load_state_dict(state)


def test_evaluation_puts_layers_into_evaluation_mode_and_back_as_they_were():
    dropout, frozen = nn.Dropout(0.5), nn.Dropout(0.5).eval()
    executor = PipelineExecutor(plan_of(2), [dropout, frozen], layers.loss_of)
    inputs = torch.randn(4, layers.WIDTH)
    assert torch.equal(executor.eval(inputs), inputs)
    assert (dropout.training, frozen.training) == (True, False)


@pytest.mark.parametrize("backward", [("B",), ("I", "W")])
def test_nothing_of_a_microbatch_outlives_its_backward(backward):
    """Microbatch by microbatch, no more than one has live outputs; after the step, none has."""
    order = [
        (stage, kind, m)
        for m in range(MICROBATCHES)
        for stage, kind in [(0, "F"), (1, "F"), *((s, k) for s in (1, 0) for k in backward)]
    ]
    live: list[weakref.ref[torch.Tensor]] = []
    most = 0

    class Watched(layers.Dense):
        def forward(self, hidden, *skips):
            nonlocal most
            output = super().forward(hidden, *skips)
            if torch.is_grad_enabled():
                most = max(most, 1 + sum(reference() is not None for reference in live))
                live.append(weakref.ref(output))
            return output

    executor = PipelineExecutor(plan_of(2, order=order), [Watched(), dense(1)], layers.loss_of)
    gc.disable()
    try:
        executor.step(*batch())
        assert most == 1
        assert all(reference() is None for reference in live)
        assert len(live) == MICROBATCHES
    finally:
        gc.enable()


def test_frozen_layers_everywhere_are_no_error():
    """No parameter and no input requires a gradient anywhere."""
    executor = PipelineExecutor(plan_of(2), lambda index: dense(index).requires_grad_(False), layers.loss_of)
    assert executor.step(*batch()).isfinite()
    assert all(parameter.grad is None for parameter in executor.parameters())
