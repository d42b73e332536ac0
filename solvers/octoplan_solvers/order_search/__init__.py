"""Search for an order with partition and placement fixed: exact, by large neighbourhoods, and periodic."""

from octoplan_solvers.order_search.exact import WIDTHS, solve_order, starting_order
from octoplan_solvers.order_search.large_neighbourhood import improve_order
from octoplan_solvers.order_search.model import Effort
from octoplan_solvers.order_search.pattern import Pattern, solve_pattern, unroll
from octoplan_solvers.order_search.periodic import periodic_order
from octoplan_solvers.order_search.result import Evaluate, OrderResult
from octoplan_solvers.order_search.sequences import SequenceSearch, compile_kernels

__all__ = [
    "Effort",
    "Evaluate",
    "OrderResult",
    "Pattern",
    "SequenceSearch",
    "WIDTHS",
    "compile_kernels",
    "improve_order",
    "periodic_order",
    "solve_order",
    "solve_pattern",
    "starting_order",
    "unroll",
]
