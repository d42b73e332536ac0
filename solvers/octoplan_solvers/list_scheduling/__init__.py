"""List scheduling: an order for a fixed partition and placement, by a priority policy, under memory limits."""

from octoplan_solvers.list_scheduling.policy import Policy, PolicyRule, microbatch_period, remaining_path
from octoplan_solvers.list_scheduling.portfolio import (
    best_of_portfolio,
    improve_policy,
    portfolio,
)
from octoplan_solvers.list_scheduling.scheduler import ListSchedule, ListScheduler, MemoryTooSmallError

__all__ = [
    "ListSchedule",
    "ListScheduler",
    "MemoryTooSmallError",
    "Policy",
    "PolicyRule",
    "best_of_portfolio",
    "improve_policy",
    "microbatch_period",
    "portfolio",
    "remaining_path",
]
