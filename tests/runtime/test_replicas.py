"""Pipelines inside `DistributedDataParallel` and FSDP2: two replicas of two ranks against one process."""

from __future__ import annotations

import pytest

from octoplan_runtime.launch import launch_local
from tests.runtime import replica_cases
from tests.runtime.test_pipeline import complaints_of


@pytest.mark.timeout(150)
def test_gradients_are_those_of_one_process_over_the_batches_of_both_replicas(tmp_path):
    run = launch_local(replica_cases.check_replicas, 4, (str(tmp_path),))
    assert run.exit_codes == [0] * 4
    assert complaints_of(tmp_path, 4) == []
