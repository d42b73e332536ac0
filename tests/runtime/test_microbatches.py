"""Cutting a batch and joining outputs."""

from __future__ import annotations

import pytest
import torch

from octoplan_runtime.microbatches import join_values, split_batch
from octoplan_schemas import InputError


def test_a_tensor_is_cut_in_order():
    parts = split_batch(torch.arange(6), 3, "inputs")
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]


def test_a_tuple_is_cut_tensor_by_tensor():
    parts = split_batch((torch.arange(2), torch.arange(4)), 2, "inputs")
    assert [[tensor.tolist() for tensor in part] for part in parts] == [[[0], [0, 1]], [[1], [2, 3]]]


@pytest.mark.parametrize("batch", [torch.arange(5), torch.zeros(0, 3), torch.tensor(1.0)])
def test_unequal_microbatches_are_refused(batch):
    with pytest.raises(InputError, match=r"targets: \d samples cannot be cut into 2 equal microbatches"):
        split_batch(batch, 2, "targets")


def test_a_missing_batch_is_refused():
    with pytest.raises(InputError, match="need targets on this rank"):
        split_batch(None, 2, "targets")


def test_outputs_are_joined_by_number():
    assert join_values([(torch.tensor([1]),), (torch.tensor([2]),)]).tolist() == [1, 2]
    pair = join_values([(torch.tensor([1]), torch.tensor([3])), (torch.tensor([2]), torch.tensor([4]))])
    assert [tensor.tolist() for tensor in pair] == [[1, 2], [3, 4]]
