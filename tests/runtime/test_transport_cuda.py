"""The CUDA transport's bookkeeping; its streams need a GPU."""

from __future__ import annotations

import pytest
import torch

from octoplan_runtime.launch import launch_local
from octoplan_runtime.transport_cuda import _bytes, directed_pairs
from tests.runtime import cuda_cases, plans
from tests.runtime.test_pipeline import complaints_of


@pytest.mark.timeout(150)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_gradients_and_times_are_right_on_streams_that_are_always_done(num_ranks, tmp_path):
    run = launch_local(cuda_cases.check_cuda_transport, num_ranks, (str(tmp_path),))
    assert run.exit_codes == [0] * num_ranks
    assert complaints_of(tmp_path, num_ranks) == []


def test_pairs_are_directed_and_in_one_order_for_all():
    bounds = [(0, 1), (1, 2), (2, 3)]
    order = [(s, "F", 0) for s in range(3)] + [(s, "B", 0) for s in reversed(range(3))]
    plan = plans.make_plan(bounds, [1, 0, 2], order, 1, skips=[(0, 2)])
    assert directed_pairs(plan) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.int16, torch.bfloat16, torch.float64])
def test_any_type_travels_as_bytes_of_the_same_memory(dtype):
    tensor = torch.zeros(2, 3, dtype=dtype)
    (part,) = _bytes([tensor, torch.empty(0, dtype=dtype)])
    assert part.dim() == 1
    part.fill_(1)
    assert tensor.view(torch.uint8).eq(1).all()
    (single,) = _bytes([torch.zeros((), dtype=dtype)])
    assert single.numel() == dtype.itemsize
