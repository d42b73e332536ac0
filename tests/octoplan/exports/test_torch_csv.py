"""``torch-csv``: torch's own loader and dry run take what is written; what torch would get wrong is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import octoplan
from octoplan_schemas import Plan
from tests.builders import make_layer, make_model
from tests.octoplan.exports import torch_loader
from tests.octoplan.exports.samples import block_model, compiled, pair
from tests.runtime import plans


def exported(plan: Plan, folder: Path) -> Path:
    octoplan.export_plan(plan, "torch-csv", folder / "plan.csv")
    return folder / "plan.csv"


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("options", [{"target": "torch"}, {"strategy": "1f1b"}, {"strategy": "zb-v"}])
def test_torch_loads_it_word_by_word(num_ranks: int, options: dict[str, object], tmp_path: Path) -> None:
    plan = compiled(block_model(7), pair(num_ranks), **options)
    schedule = torch_loader.load(plan, exported(plan, tmp_path), "compute_comms")
    assert schedule.stage_index_to_group_rank == {stage.id: stage.rank for stage in plan.stages}
    torch_loader.dry_run(schedule)
    for rank, loaded in enumerate(torch_loader.words(schedule)):
        own = [stage.id for stage in plan.stages if stage.rank == rank]
        added = ("UNSHARD", "RESHARD", "REDUCE_GRAD")
        assert [word for word in loaded if not word.endswith(added)] == list(plan.programs[rank])
        assert loaded[: len(own)] == [f"{stage}UNSHARD" for stage in own]
        assert loaded[-len(own) :] == [f"{stage}RESHARD" for stage in own]
        for stage in own:
            reduced = loaded.index(f"{stage}REDUCE_GRAD")
            backwards = {f"{stage}{kind}{m}" for kind in "BW" for m in range(plan.job.microbatches)}
            assert len(backwards.intersection(loaded[:reduced])) == plan.job.microbatches
            assert loaded[reduced - 1] in backwards


def test_forwards_of_the_last_stage_out_of_order_are_refused(tmp_path: Path) -> None:
    order: list[plans.Op] = [(0, "F", 0), (0, "F", 1), (1, "F", 1), (1, "F", 0)]
    order += [(stage, "B", m) for m in (0, 1) for stage in (1, 0)]
    plan = plans.make_plan([(0, 1), (1, 2)], [0, 1], order, 2)
    with pytest.raises(octoplan.InfeasibleError, match="1F1 comes where microbatch 0 should"):
        exported(plan, tmp_path)
    assert list(tmp_path.iterdir()) == []


def skip_plan(ranks: list[int]) -> Plan:
    order: list[plans.Op] = [(stage, "F", 0) for stage in range(3)]
    order += [(stage, "B", 0) for stage in reversed(range(3))]
    return plans.make_plan([(0, 1), (1, 2), (2, 3)], ranks, order, 1, skips=[(0, 2)])


def test_a_skip_between_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(octoplan.InfeasibleError, match="stage 0 feeds stage 2"):
        exported(skip_plan([0, 1, 1]), tmp_path)


def test_a_skip_within_a_rank_is_refused_where_the_model_tells_of_it(tmp_path: Path) -> None:
    model = make_model([make_layer(f"l{index}") for index in range(3)], [("l0", "l2", 1.0)])
    with pytest.raises(octoplan.InfeasibleError, match="stage 0 feeds stage 2"):
        octoplan.export_plan(skip_plan([0, 1, 0]), "torch-csv", tmp_path / "plan.csv", model=model)
    assert list(tmp_path.iterdir()) == []
