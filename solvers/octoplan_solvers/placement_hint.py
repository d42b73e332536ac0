"""The value of every variable of the partition and placement model for an assignment, for either backend.

A hint that leaves nothing open is a solution at once; the solver need not search for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from octoplan_solvers.constraints import layer_ranks
from octoplan_solvers.problem import Assignment, PipelineProblem


class PlacementVariables(Protocol):
    """What `cp_sat.variables` and `milp.variables` have in common, besides the makespan."""

    @property
    def on(self) -> list[list[Any]]: ...
    @property
    def arrives(self) -> list[list[Any]]: ...
    @property
    def seen(self) -> list[list[Any]]: ...
    @property
    def cuts(self) -> dict[tuple[int, int], Any]: ...
    @property
    def crosses(self) -> dict[int, Any]: ...
    @property
    def ahead(self) -> dict[tuple[int, int], Any]: ...
    @property
    def slow(self) -> dict[tuple[int, int, int], Any]: ...
    @property
    def differs(self) -> dict[int, Any]: ...


def variable_values(
    variables: PlacementVariables, problem: PipelineProblem, assignment: Assignment
) -> Iterator[tuple[Any, bool]]:
    """Yield each variable with its value, the makespan apart.

    Interchangeable ranks must be named as the model orders them (`symmetry.canonical`).
    """
    rank_of = layer_ranks(assignment)
    starts = {first for first, _ in assignment.boundaries}
    first_layer = [
        rank_of.index(rank) if rank in rank_of else len(rank_of) for rank in range(problem.num_ranks)
    ]
    changes = [layer == 0 or rank_of[layer] != rank_of[layer - 1] for layer in range(len(rank_of))]
    for layer, own in enumerate(rank_of):
        for rank in range(problem.num_ranks):
            yield variables.on[layer][rank], rank == own
            yield variables.arrives[layer][rank], rank == own and changes[layer]
            yield variables.seen[layer][rank], first_layer[rank] <= layer
    for (layer, rank), cut in variables.cuts.items():
        yield cut, layer in starts and not changes[layer] and rank_of[layer] == rank
    for layer, crosses in variables.crosses.items():
        yield crosses, changes[layer]
    for (layer, rank), ahead in variables.ahead.items():
        yield ahead, changes[layer] and first_layer[rank] >= layer
    for (kind, layer, rank), slow in variables.slow.items():
        yield slow, int(problem.rank_type[rank_of[layer]]) == kind and first_layer[rank] > layer
    for skip, differs in variables.differs.items():
        ends = problem.skip_source[skip], problem.skip_destination[skip]
        yield differs, rank_of[ends[0]] != rank_of[ends[1]]
