"""Miniature layers: every kind, the same on every rank, causal, in every dtype."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from octoplan_runtime import MiniatureSize, build_miniature
from octoplan_runtime.miniature.blocks import Block, Embedding, Head, MultiTokenPrediction
from octoplan_runtime.miniature.mamba2 import Mamba2
from octoplan_runtime.miniature.mlp import MLP, MixtureOfExperts
from octoplan_schemas import ModelGraph

SIZE = MiniatureSize()
INNER = ("attention", "mlp", "moe", "mamba2", "transformer", "transformer_moe", "mtp", "something new")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def model_of(kinds):
    cost = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 1.0}
    sizes = ("state_bytes", "activation_bytes", "weight_stash_bytes", "workspace_bytes", "output_bytes")
    layers = [
        {"name": f"{index}-{kind}", "kind": kind, "cost": {"*": cost}, **dict.fromkeys(sizes, 1)}
        for index, kind in enumerate(kinds)
    ]
    return ModelGraph.from_document({"format": "octoplan.model/1", "name": "test", "layers": layers})


def run(workload, dtype, step=0):
    inputs, targets = workload.batch_in(step, dtype)
    modules = [workload.layer_in(dtype)(index) for index in range(workload.num_layers)]
    hidden = inputs
    for module in modules:
        hidden = module(hidden)
    return modules, hidden, workload.loss(hidden, targets)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_every_kind_trains_every_parameter(dtype):
    workload = build_miniature(model_of(["embedding", *INNER, "lm_head"]), 2)
    modules, output, loss = run(workload, dtype)
    assert output.shape == (2 * SIZE.microbatch_size, SIZE.sequence_length, SIZE.num_tokens)
    assert output.dtype == dtype
    loss.backward()
    for index, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            assert parameter.dtype == dtype
            assert parameter.grad is not None, (index, name)
            assert parameter.grad.abs().max() > 0, (index, name)


def test_kinds_become_layers_of_these_classes_and_misplaced_ones_an_mlp():
    kinds = [
        "embedding",
        "lm_head",
        "mamba2",
        "moe",
        "transformer",
        "mtp",
        "embedding",
        "unheard of",
        "lm_head",
    ]
    workload = build_miniature(model_of(kinds), 1)
    found = [type(workload.layer(index)) for index in range(len(kinds))]
    assert found == [Embedding, MLP, Mamba2, MixtureOfExperts, Block, MultiTokenPrediction, MLP, MLP, Head]


@pytest.mark.parametrize("kind", INNER)
def test_a_position_sees_only_earlier_ones(kind):
    workload = build_miniature(model_of(["mlp", kind]), 1)
    layer = workload.layer_in(torch.float64)(1)
    hidden = torch.randn(1, SIZE.sequence_length, SIZE.width, dtype=torch.float64)
    changed = hidden.clone()
    changed[:, 9:] += 1.0
    difference = (layer(hidden) - layer(changed)).abs().amax(dim=(0, 2))
    assert difference[:9].max() == 0
    assert difference[9:].min() > 0


@pytest.mark.parametrize("kind", ["attention", "mamba2"])
def test_sequence_mixers_reach_back_to_the_first_position(kind):
    layer = build_miniature(model_of(["mlp", kind]), 1).layer_in(torch.float64)(1)
    hidden = torch.randn(1, SIZE.sequence_length, SIZE.width, dtype=torch.float64)
    changed = hidden.clone()
    changed[:, 0] += 1.0
    assert (layer(hidden) - layer(changed))[:, -1].abs().max() > 0


def test_the_state_space_layer_equals_its_recurrence():
    """The quadratic form against a scan, position by position."""
    torch.manual_seed(0)
    layer = Mamba2(8, 2, 3).double()
    values, decay = torch.randn(1, 6, 2, 4).double(), -torch.rand(1, 6, 2).double()
    keys, queries = torch.randn(1, 6, 3).double(), torch.randn(1, 6, 3).double()
    state = torch.zeros(2, 4, 3, dtype=torch.float64)
    expected = []
    for t in range(6):
        state = state * decay[0, t].exp()[:, None, None] + values[0, t][:, :, None] * keys[0, t]
        expected.append(state @ queries[0, t])
    found = layer._scan(values, keys, queries, decay)
    torch.testing.assert_close(found[0], torch.stack(expected), rtol=1e-12, atol=1e-13)


def test_a_token_uses_only_its_best_experts():
    torch.manual_seed(0)
    layer = MixtureOfExperts(8, 16, num_experts=4, num_active=2)
    hidden = torch.randn(1, 1, 8)
    chosen = layer.router(layer.norm(hidden)).topk(2).indices.flatten().tolist()
    layer(hidden).sum().backward()
    used = [expert for expert in range(4) if layer.up.grad[expert].abs().max() > 0]
    assert used == sorted(chosen)


def test_skip_tensors_change_the_result():
    workload = build_miniature(model_of(["embedding", *INNER, "lm_head"]), 1)
    hidden = torch.randn(1, SIZE.sequence_length, SIZE.width)
    for index in range(1, workload.num_layers):
        layer = workload.layer(index)
        with_skip = layer(hidden, torch.randn_like(hidden))
        assert not torch.equal(with_skip, layer(hidden)), index


def same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_any_rank_builds_the_same_layer_and_leaves_the_random_state_alone():
    workload = build_miniature(model_of(["embedding", "attention", "attention", "lm_head"]), 1, seed=4)
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    layer = workload.layer(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(12)
    assert same(workload.layer(2), layer)
    assert not same(workload.layer(1), layer)
    assert not same(build_miniature(model_of(["embedding"] + ["attention"] * 3), 1, seed=5).layer(2), layer)


def test_batches_differ_by_step_and_equal_by_seed():
    model = model_of(["embedding", "mlp", "lm_head"])
    first, second = build_miniature(model, 3, seed=1), build_miniature(model, 3, seed=1)
    assert torch.equal(first.batch(0)[0], second.batch(0)[0])
    assert not torch.equal(first.batch(0)[0], first.batch(1)[0])
    assert first.batch(0)[0].shape == (3 * SIZE.microbatch_size, SIZE.sequence_length)


def test_a_model_without_embedding_and_head_gets_vectors_and_classes_by_width():
    _, output, loss = run(build_miniature(model_of(["mamba2", "mlp"]), 1), torch.float64)
    assert output.shape[-1] == SIZE.width
    assert loss.isfinite()


def tied_model(kinds, *groups):
    document = model_of(kinds).to_document()
    names = [layer["name"] for layer in document["layers"]]
    return ModelGraph.from_document({**document, "tied": [[names[i] for i in group] for group in groups]})


def test_an_embedding_and_a_head_share_the_vocabulary_and_equal_blocks_share_everything():
    kinds = ["embedding", "mlp", "attention", "mlp", "lm_head"]
    workload = build_miniature(tied_model(kinds, (4, 0), (1, 3), (1, 2)), 2)
    assert workload.tied[0] == ("layers.0.table.weight", "layers.4.project.weight")
    expected = [(f"layers.1.{name}", f"layers.3.{name}") for name, _ in workload.layer(1).named_parameters()]
    assert list(workload.tied[1:]) == expected, "an MLP and an attention have nothing in common"
    for names in workload.tied:
        shapes = {
            workload.layer(int(name.split(".")[1])).get_parameter(name.split(".", 2)[2]).shape
            for name in names
        }
        assert len(shapes) == 1
