"""Plans on real processes give the gradients of a single process."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from octoplan_runtime.launch import launch_local
from tests.runtime import pipeline_cases


def complaints_of(directory: Path, num_ranks: int) -> list[str]:
    lines = []
    for rank in range(num_ranks):
        for case, found in json.loads((directory / f"{rank}.json").read_text(encoding="utf-8")).items():
            lines += [f"rank {rank}, {case}: {line}" for line in found]
    return lines


@pytest.mark.timeout(200)
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("cases", [pipeline_cases.named_cases, pipeline_cases.random_cases])
def test_gradients_losses_and_evaluation_equal_the_single_process(cases, num_ranks, tmp_path):
    run = launch_local(pipeline_cases.check_cases, num_ranks, (cases, str(tmp_path)))
    assert run.exit_codes == [0] * num_ranks
    assert complaints_of(tmp_path, num_ranks) == []
    assert multiprocessing.active_children() == []


@pytest.mark.timeout(100)
def test_two_pipelines_side_by_side_in_groups_of_their_own(tmp_path):
    run = launch_local(pipeline_cases.other_data_parallel_half, 4, (str(tmp_path),))
    assert run.exit_codes == [0] * 4
    assert complaints_of(tmp_path, 4) == []
