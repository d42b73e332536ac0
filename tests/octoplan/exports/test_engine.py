"""Torch's own engine runs exported plans, with the gradients of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import octoplan
from octoplan_runtime.launch import launch_local
from octoplan_schemas import save
from tests.octoplan.exports import engine_cases
from tests.octoplan.exports.samples import block_model, compiled, pair
from tests.runtime.feature_cases import MICROBATCHES

#: Name, and options of the compilation.
PLANS: dict[str, dict[str, object]] = {
    "searched-for-torch": {"target": "torch", "max_stages_per_device": 3},
    "searched-for-torchtitan": {"target": "torchtitan", "max_stages_per_device": 2},
    "v-shaped": {"target": "torchtitan", "strategy": "zb-v"},
    "interleaved": {"target": "torchtitan", "strategy": "interleaved-1f1b"},
    # The first stage's I is there; torch skips it and lets W do all.
    "split-everywhere": {"strategy": "zb-h1"},
}


@pytest.mark.timeout(120)
def test_gradients_equal_those_of_one_process(tmp_path: Path) -> None:
    num_ranks, model = 2, block_model(6)
    for name, options in PLANS.items():
        plan = compiled(model, pair(num_ranks), MICROBATCHES, **options)
        save(tmp_path / f"{name}.plan.json", plan)
        octoplan.export_plan(plan, "torch-csv", tmp_path / f"{name}.torch.csv")
        if name != "searched-for-torch":
            octoplan.export_plan(plan, "torchtitan", tmp_path / f"{name}.titan.csv", model=model)
    run = launch_local(engine_cases.run_on_torch, num_ranks, (str(tmp_path),))
    assert run.exit_codes == [0] * num_ranks
    for rank in range(num_ranks):
        found = json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8"))
        assert len(found) == 2 * len(PLANS) - 1
        assert not any(found.values()), found
