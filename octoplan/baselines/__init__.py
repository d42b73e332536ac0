"""Published pipeline schedules as baselines: placement and order by name, and the uniform partition."""

from octoplan.baselines.partition import uniform_boundaries
from octoplan.baselines.registry import BASELINES, BaselineSpec, baseline, build_schedule
from octoplan.baselines.schedule import (
    BaselineSchedule,
    Op,
    PlacementKind,
    RankOrder,
    StageCosts,
    loop_placement,
    v_placement,
)
from octoplan.baselines.strategy import OCTOPLAN, PartitionKind, Strategy, parse_strategy

__all__ = [
    "BASELINES",
    "OCTOPLAN",
    "BaselineSchedule",
    "BaselineSpec",
    "Op",
    "PartitionKind",
    "PlacementKind",
    "RankOrder",
    "StageCosts",
    "Strategy",
    "baseline",
    "build_schedule",
    "loop_placement",
    "parse_strategy",
    "uniform_boundaries",
    "v_placement",
]
