"""Partition and placement as a mixed-integer linear program, through PuLP."""

from octoplan_solvers.milp.backends import available_backends
from octoplan_solvers.milp.model import emit_model, solve_placement

__all__ = ["available_backends", "emit_model", "solve_placement"]
