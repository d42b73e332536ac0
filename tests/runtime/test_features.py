"""What a training run needs beyond the plain case, on real processes against a plain loop."""

from __future__ import annotations

import json

import pytest

from octoplan_runtime.launch import launch_local
from tests.runtime import feature_cases
from tests.runtime.test_pipeline import complaints_of


@pytest.mark.timeout(150)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_features_give_what_a_plain_loop_gives(num_ranks, tmp_path):
    run = launch_local(feature_cases.check_features, num_ranks, (str(tmp_path),))
    assert run.exit_codes == [0] * num_ranks
    assert complaints_of(tmp_path, num_ranks) == []


@pytest.mark.timeout(100)
def test_a_rank_with_another_plan_is_found_by_every_rank(tmp_path):
    run = launch_local(feature_cases.other_plans, 3, (str(tmp_path),))
    assert run.exit_codes == [0] * 3
    for rank in range(3):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert said == "rank 2 has another plan than rank 0; give every rank the same file"


@pytest.mark.timeout(100)
def test_a_label_finds_a_message_out_of_order(tmp_path):
    run = launch_local(feature_cases.swapped_messages, 2, (str(tmp_path),))
    assert run.exit_codes == [1, 1]
    said = (tmp_path / "1.txt").read_text()
    assert said.startswith("rank 1 failed in 1RECV_F0: ")
    assert said.endswith("1RECV_F0 received what stage 0 sent to stage 1 for microbatch 1")
