"""The tuner: searches partition, placement and order together, with the simulator in its loop."""

from octoplan.tuner.budget import Budget
from octoplan.tuner.candidate import Candidate, Pricer
from octoplan.tuner.search import SearchTrace, search
from octoplan.tuner.starts import lightest_in_memory, starting_assignments
from octoplan.tuner.warm_up import warm_up

__all__ = [
    "Budget",
    "Candidate",
    "Pricer",
    "SearchTrace",
    "lightest_in_memory",
    "search",
    "starting_assignments",
    "warm_up",
]
