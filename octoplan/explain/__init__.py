"""Explaining a plan: where its time goes, what holds it back, and what each change would be worth."""

from octoplan.explain.explanation import Explanation
from octoplan.explain.report import ExplainOptions, explain_plan

__all__ = ["ExplainOptions", "Explanation", "explain_plan"]
