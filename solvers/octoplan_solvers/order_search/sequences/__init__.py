"""Exact orders of small problems: branching over sequences of ops and messages, level by level."""

from octoplan_solvers.order_search.sequences.search import SequenceSearch, compile_kernels

__all__ = ["SequenceSearch", "compile_kernels"]
