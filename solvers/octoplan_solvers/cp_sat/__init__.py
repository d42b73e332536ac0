"""Partition and placement by OR-Tools CP-SAT."""

from octoplan_solvers.cp_sat.model import assignment_from_layer_ranks, solve_placement

__all__ = ["assignment_from_layer_ranks", "solve_placement"]
