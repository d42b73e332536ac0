"""Partition and placement by OR-Tools CP-SAT."""

from octoplan_solvers.cp_sat.explain import explain_infeasible, find_conflict
from octoplan_solvers.cp_sat.model import emit_model, solve_placement

__all__ = ["emit_model", "explain_infeasible", "find_conflict", "solve_placement"]
