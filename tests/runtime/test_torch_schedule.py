"""Torch's own runtime, given the same plan as CSV, computes the same gradients."""

from __future__ import annotations

import pytest

from octoplan_runtime.launch import launch_local
from tests.runtime import torch_cases
from tests.runtime.test_pipeline import complaints_of


@pytest.mark.timeout(100)
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_gradients_equal_those_of_torchs_schedule(num_ranks, tmp_path):
    run = launch_local(torch_cases.compare_with_torch, num_ranks, (str(tmp_path),))
    assert run.exit_codes == [0] * num_ranks
    assert complaints_of(tmp_path, num_ranks) == []
