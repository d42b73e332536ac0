"""Read the orders of torch's own schedule classes on one process, and spell them as our ops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch.distributed.pipelining import schedules as torch_schedules

from octoplan.baselines import Op

_KINDS = {"F": "F", "I": "I", "W": "W", "B": "B"}


def torch_orders(
    class_name: str, num_ranks: int, num_microbatches: int, stages_per_rank: int
) -> tuple[tuple[Op, ...], ...]:
    """Return the compute ops of every rank of a torch schedule class."""
    stages = [_stage(index, num_ranks, stages_per_rank) for index in range(stages_per_rank)]
    schedule_class: Any = getattr(torch_schedules, class_name)
    single = issubclass(schedule_class, torch_schedules.PipelineScheduleSingle)
    schedule = schedule_class(stages[0] if single else stages, num_microbatches)
    return tuple(_ops(schedule.pipeline_order[rank]) for rank in range(num_ranks))


def _stage(index: int, num_ranks: int, stages_per_rank: int) -> Any:
    """What a schedule class looks at while it builds its order, seen from rank 0."""
    return SimpleNamespace(
        stage_index=index * num_ranks,
        num_stages=num_ranks * stages_per_rank,
        group_size=num_ranks,
        group_rank=0,
        group=None,
        device="cpu",
        has_backward=False,
        is_first=index == 0,
        is_last=False,
        stage_index_to_group_rank={},
        submod=None,
        dw_builder=None,
    )


def _ops(actions: list[Any]) -> tuple[Op, ...]:
    ops: list[Op] = []
    for action in actions:
        if action is None:
            continue
        for part in action.sub_actions or (action,):
            kind = part.computation_type.value
            if kind in _KINDS:
                ops.append((part.stage_index, kind, part.microbatch_index))
    return tuple(ops)
