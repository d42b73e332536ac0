"""Plan validation: complete, ordered, first-in-first-out and deadlock-free (contract, section 5)."""

from octoplan_schemas.validation.check import Finding, Rule, check_plan, require_valid
from octoplan_schemas.validation.index import ProgramIndex, stage_edges

__all__ = ["Finding", "ProgramIndex", "Rule", "check_plan", "require_valid", "stage_edges"]
