"""Torch's own loader, checks and dry run of a schedule, without processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.distributed.pipelining import schedules

from octoplan_schemas import Plan

_DRY_RUN_SKIPS = (schedules.UNSHARD, schedules.RESHARD, schedules.REDUCE_GRAD)


def load(plan: Plan, csv: Path, format: str) -> Any:
    """Return torch's schedule after it has read and checked the file."""
    schedule = schedules._PipelineScheduleRuntime.__new__(schedules._PipelineScheduleRuntime)
    schedule._stages = []
    schedule._num_stages = len(plan.stages)
    schedule._n_microbatches = plan.job.microbatches
    schedule._defer_pp_recv = False
    schedule.pp_group_size = plan.num_ranks
    schedule.pipeline_order = {}
    schedule._load_csv(str(csv), format=format)  # type: ignore[arg-type]
    return schedule


def words(schedule: Any) -> list[list[str]]:
    """Return what torch will run, as words by rank."""
    return [
        [str(action) for action in schedule.pipeline_order_with_comms[rank]]
        for rank in sorted(schedule.pipeline_order_with_comms)
    ]


def dry_run(schedule: Any) -> None:
    """Let torch run it in thought; it raises if a rank waits for ever."""
    kept = {
        rank: [action for action in actions if action.computation_type not in _DRY_RUN_SKIPS]
        for rank, actions in schedule.pipeline_order_with_comms.items()
    }
    schedules._simulate_comms_compute(
        kept, lambda stage: schedule.stage_index_to_group_rank[stage], schedule._num_stages
    )
