"""Shapes and dtypes as plain integers, and where they come from."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from octoplan_runtime.stage_graph import MODEL_INPUT, layer_feeds
from octoplan_runtime.stage_module import StageModule
from octoplan_runtime.tensor_specs import _DTYPES, TensorSpec, _decode, _encode, export_specs
from tests.runtime import layers

SPECS = st.lists(
    st.builds(TensorSpec, st.lists(st.integers(0, 9999), max_size=5).map(tuple), st.sampled_from(_DTYPES)),
    max_size=4,
).map(tuple)


@given(st.lists(SPECS, max_size=4))
def test_what_is_encoded_is_decoded(outputs):
    numbers = [number for specs in outputs for number in _encode(specs)]
    assert [_decode(numbers) for _ in outputs] == outputs
    assert numbers == []


def specs_of(stage_layers):
    module = StageModule(stage_layers, (0, 2), layer_feeds(2, []), (1,))
    return module, export_specs(module, {MODEL_INPUT: (TensorSpec((3,), torch.int64),)}, torch.device("cpu"))


def test_several_outputs_of_several_dtypes():
    _, specs = specs_of([layers.Tokens(), layers.Fork()])
    shape = (3, layers.WIDTH)
    assert specs == {
        1: (
            TensorSpec(shape, torch.float32),
            TensorSpec(shape, torch.float32),
            TensorSpec(shape, torch.int64),
        )
    }
    assert [spec.has_gradient for spec in specs[1]] == [True, True, False]


def test_shapes_that_depend_on_data_come_from_a_real_run_that_leaves_no_trace():
    class Counting(layers.DataDependent):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(layers.WIDTH)
            self.drop = nn.Dropout(0.5)

        def forward(self, hidden, *skips):
            return self.drop(self.norm(super().forward(hidden, *skips)))

    stage_layers = [layers.Tokens(), Counting()]
    before = torch.random.get_rng_state()
    module, specs = specs_of(stage_layers)
    assert specs == {1: (TensorSpec((3, layers.WIDTH), torch.float32),)}
    norm = module.layers["1"].norm
    assert norm.num_batches_tracked.item() == 0
    assert torch.equal(norm.running_mean, torch.zeros(layers.WIDTH))
    assert torch.equal(torch.random.get_rng_state(), before)
