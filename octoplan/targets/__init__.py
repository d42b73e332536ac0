"""Targets: compiling for engines that people already run (contract, section 7)."""

from octoplan.targets.registry import TARGETS, get_target
from octoplan.targets.target import Target

__all__ = ["TARGETS", "Target", "get_target"]
