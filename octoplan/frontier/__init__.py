"""The trade-off of makespan against memory: the plans that nothing beats in both."""

from octoplan.frontier.files import require_frontier_output, write_frontier
from octoplan.frontier.frontier import Frontier, FrontierPoint
from octoplan.frontier.tracing import compile_frontier

__all__ = ["Frontier", "FrontierPoint", "compile_frontier", "require_frontier_output", "write_frontier"]
