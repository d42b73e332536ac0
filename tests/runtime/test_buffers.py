"""A block of memory is lent again when nothing refers to what it was lent for, and not before."""

from __future__ import annotations

import gc
import random

import pytest
import torch

from octoplan_runtime.buffers import BufferPool
from octoplan_runtime.tensor_specs import TensorSpec

SPEC = TensorSpec((3, 4), torch.float32)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_garbage_collection():
    """What comes back must come back at once."""
    gc.disable()
    yield
    gc.enable()


def test_a_block_is_lent_again_after_its_last_view():
    pool = BufferPool(CPU)
    first = pool.lend(SPEC)
    view, place = first.view(-1)[2:], first.data_ptr()
    del first
    assert pool.lend(SPEC).data_ptr() != place
    del view
    both = [pool.lend(SPEC), pool.lend(SPEC)]
    assert place in {tensor.data_ptr() for tensor in both}
    assert pool.num_bytes == 2 * 48


def test_what_autograd_has_saved_is_in_use():
    pool = BufferPool(CPU)
    leaf = pool.lend(SPEC).fill_(2.0).detach().requires_grad_()
    place = leaf.data_ptr()
    output = leaf.square().sum()
    del leaf
    assert pool.lend(SPEC).data_ptr() != place
    del output
    assert place in {tensor.data_ptr() for tensor in [pool.lend(SPEC), pool.lend(SPEC)]}


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec((), torch.float64),
        TensorSpec((5,), torch.bool),
        TensorSpec((2, 3), torch.bfloat16),
        TensorSpec((2,), torch.complex128),
        TensorSpec((0, 3), torch.int64),
    ],
)
def test_a_lent_tensor_is_as_specified(spec):
    lent = BufferPool(CPU).lend(spec)
    assert TensorSpec.of(lent) == spec
    assert lent.is_contiguous()
    lent.zero_()
    assert not lent.any()


def test_blocks_of_one_size_serve_every_shape_and_type_of_that_size():
    pool = BufferPool(CPU)
    for spec in (SPEC, TensorSpec((12,), torch.int32), TensorSpec((6,), torch.float64)):
        pool.lend(spec)
    assert pool.num_bytes == 48


@pytest.mark.parametrize("seed", range(10))
def test_there_are_as_many_blocks_as_were_in_use_at_once_and_none_is_lent_twice(seed):
    rng, pool = random.Random(seed), BufferPool(CPU)
    held: list[torch.Tensor] = []
    most = 0
    for number in range(200):
        if held and rng.random() < 0.5:
            tensor = held.pop(rng.randrange(len(held)))
            assert tensor.eq(tensor[0, 0]).all(), "nobody else has written to it"
            del tensor
        else:
            held.append(pool.lend(SPEC).fill_(number))
            most = max(most, len(held))
    assert pool.num_bytes == 48 * most
