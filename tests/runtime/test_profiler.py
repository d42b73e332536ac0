"""Measured layers: bytes against counts made by hand, and a model graph that compiles and runs."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from octoplan.cli.app import run as octoplan_command
from octoplan_runtime import Workload
from octoplan_runtime.profiler.__main__ import main
from octoplan_runtime.profiler.live_tensors import LiveTensors
from octoplan_runtime.profiler.options import ProfileOptions
from octoplan_runtime.profiler.profile import profile_workload
from octoplan_schemas import ModelGraph, load
from tests.runtime.test_pipeline import four_devices

SAMPLES, IN, HIDDEN, OUT = 3, 5, 7, 4
FLOAT = 4


class Perceptron(nn.Module):
    """Saves its input for the weight of `up`, what tanh gives for tanh, and that for the weight of `down`."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(IN, HIDDEN)
        self.down = nn.Linear(HIDDEN, IN, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(hidden)))


class Recomputed(Perceptron):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(super().forward, hidden, use_reentrant=False)
        return result


class Pair(nn.Module):
    """Gives two tensors and holds a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(IN, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(IN), requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden * self.frozen, torch.arange(len(hidden))


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(IN, OUT)

    def forward(self, hidden: torch.Tensor, numbers: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.last(hidden + skip)


def workload() -> Workload:
    built = [lambda: nn.Linear(IN, IN), Perceptron, Recomputed, Pair, Joined]

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(step)
        return torch.randn(4 * SAMPLES, IN, generator=generator), torch.ones(4 * SAMPLES, OUT)

    def layer(index: int) -> nn.Module:
        torch.manual_seed(index)
        return built[index]()

    return Workload(5, layer, nn.functional.mse_loss, batch, skips=((1, 4),))


@pytest.fixture(scope="module")
def graph() -> ModelGraph:
    return profile_workload(workload(), "small", ProfileOptions(4, "cpu", repetitions=2, warm_up=1))


def test_bytes_are_those_counted_by_hand(graph):
    linear, perceptron, recomputed, pair, joined = graph.layers
    sent = SAMPLES * IN * FLOAT
    assert linear.activation_bytes == sent, "the input, for the weight"
    assert perceptron.activation_bytes == sent + SAMPLES * HIDDEN * FLOAT, (
        "the input, and what tanh gave, once"
    )
    assert perceptron.retained == perceptron.activation_bytes
    assert recomputed.activation_bytes == sent, "the input of what is recomputed"
    assert pair.activation_bytes == 0, "a frozen weight needs no input, and is there anyhow"
    loss = 2 * SAMPLES * OUT * FLOAT
    assert joined.activation_bytes == sent + loss, "the sum, and what the loss compares"
    assert [layer.output_bytes for layer in graph.layers[:3]] == [sent] * 3
    assert pair.output_bytes == sent + SAMPLES * 8
    assert joined.output_bytes == SAMPLES * OUT * FLOAT


def test_what_lies_between_the_last_weight_and_the_loss_is_freed_by_i(graph):
    assert graph.layers[-1].retained == SAMPLES * IN * FLOAT


def test_the_stash_is_the_gradients_of_the_outputs_of_the_weights(graph):
    linear, perceptron, _, pair, joined = graph.layers
    assert linear.weight_stash_bytes == SAMPLES * IN * FLOAT
    assert perceptron.weight_stash_bytes == SAMPLES * (HIDDEN + IN) * FLOAT
    assert pair.weight_stash_bytes == 0
    assert joined.weight_stash_bytes == SAMPLES * OUT * FLOAT


def test_state_is_weights_gradients_and_what_the_optimizer_keeps(graph):
    weights = [IN * IN + IN, 2 * IN * HIDDEN + HIDDEN, 2 * IN * HIDDEN + HIDDEN, 0, IN * OUT + OUT]
    expected = [4 * FLOAT * number for number in weights]
    expected[3] = 2 * IN * FLOAT  # the frozen weight, and the buffer in the type of the layer
    assert [layer.state_bytes for layer in graph.layers] == expected
    plain = profile_workload(workload(), "small", ProfileOptions(4, repetitions=1, optimizer_tensors=0))
    assert plain.layers[0].state_bytes == 2 * FLOAT * weights[0]


def test_workspace_covers_what_an_op_allocates_beside(graph):
    """W of a linear layer makes the gradients of weight and bias before they are added."""
    assert graph.layers[0].workspace_bytes >= IN * IN * FLOAT


def test_the_graph_says_where_it_comes_from(graph):
    assert (graph.name, graph.source, graph.micro_batch_size) == ("small", "profile", SAMPLES)
    assert [layer.kind for layer in graph.layers[:2]] == ["linear", "perceptron"]
    assert all(set(layer.cost) == {"cpu"} for layer in graph.layers)
    assert all(layer.cost["cpu"].forward_s > 0 for layer in graph.layers)
    (skip,) = graph.skips
    assert (skip.from_layer, skip.to_layer, skip.bytes) == ("layers.1", "layers.4", SAMPLES * IN * FLOAT)


def test_a_fused_backward_is_the_sum_of_its_parts():
    options = ProfileOptions(4, repetitions=3, backward="fused")
    costs = [layer.cost["*"] for layer in profile_workload(workload(), "small", options).layers]
    assert costs[0].backward_input_s == 0, "nothing before it needs a gradient"
    assert all(cost.backward_input_s + cost.backward_weight_s > 0 for cost in costs)


def test_mixed_precision_saves_smaller_tensors_and_the_cast_weights():
    options = ProfileOptions(4, autocast="bfloat16", repetitions=1)
    linear = profile_workload(workload(), "small", options).layers[1]
    tensors = SAMPLES * (IN + HIDDEN) * 2
    weights = 2 * IN * HIDDEN * 2
    assert linear.activation_bytes == tensors + weights


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--microbatches", "5"), "inputs: 12 samples cannot be cut into 5 equal microbatches"),
        (("--microbatches", "0"), "--microbatches: 0 must be at least 1"),
        (("--microbatches", "4", "--repetitions", "0"), "--repetitions: 0 must be at least 1"),
        (("--microbatches", "4", "--device", "abacus"), "--device: 'abacus' cannot be used"),
        (("--microbatches", "4", "--device-type", ""), "--device-type: must not be empty"),
        (("--microbatches", "4", "--dtype", "float64", "--autocast", "bfloat16"), "needs --dtype float32"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line_and_writes_nothing(
    tmp_path, capsys, arguments, expected
):
    path = tmp_path / "model.json"
    assert main(["tests.runtime.test_profiler:workload", "-o", str(path), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not path.exists()


def test_a_missing_function_is_told_by_the_argument_it_came_from(tmp_path, capsys):
    assert main(["tests.runtime.test_profiler:none", "-o", str(tmp_path / "m"), "--microbatches", "4"]) == 2
    assert capsys.readouterr().err.startswith("MODULE:FUNCTION: module 'tests.runtime.test_profiler' has no")


def test_a_measured_model_compiles_and_trains(tmp_path, capfd):
    model, plan, cluster = tmp_path / "model.json", tmp_path / "plan.json", tmp_path / "cluster.json"
    document = four_devices().to_document()
    document["devices"] = document["devices"][:2]
    cluster.write_text(json.dumps(document))
    layers = "tests.runtime.test_profiler:workload"
    profile = ["profile", layers, "-o", str(model), "--microbatches", "4", "--device-type", "d", "--json"]
    assert octoplan_command(profile) == 0
    assert json.loads(capfd.readouterr().out)["layers"] == 5
    assert set(load(model, ModelGraph).layers[0].cost) == {"d"}
    compiled = ["compile", "--model", str(model), "--cluster", str(cluster), "--microbatches", "4"]
    assert octoplan_command([*compiled, "--strategy", "1f1b:balanced", "-o", str(plan)]) == 0
    assert octoplan_command(["run", str(plan), "--model", str(model), "--layers", layers, "--verify"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "gradients match"


def test_live_tensors_counts_what_ops_make_while_it_lives():
    given = torch.ones(10)
    with LiveTensors() as live:
        view = given[2:]
        made = view + 1
        assert (live.live, live.peak) == (8 * 4, 8 * 4)
        again = made.view(2, 4)
        del made
        assert live.live == 8 * 4
        del again
        assert (live.live, live.peak) == (0, 8 * 4)
        live.restart()
        assert live.peak == 0
