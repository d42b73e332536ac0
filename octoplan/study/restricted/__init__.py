"""Searches that are held back on purpose: some dimensions alone, or a published rule (docs/studies.md)."""

from octoplan.study.restricted.dimension_search import dimension_plan
from octoplan.study.restricted.octopipe_rule import octopipe_plan

__all__ = ["dimension_plan", "octopipe_plan"]
