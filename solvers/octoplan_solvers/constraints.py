"""`PlacementConstraints`: what a user asks of partition and placement (contract, section 7), as plain integers.

Layers and ranks are indices. A stage boundary "at layer l" lies between layers l - 1 and l.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from octoplan_solvers.ops import IntArray

if TYPE_CHECKING:
    from octoplan_solvers.problem import Assignment


@dataclass(frozen=True, slots=True)
class StagesPerRank:
    """How many stages every rank may hold; ``max`` None: only the job's limit."""

    min: int = 1
    max: int | None = None
    equal: bool = False


@dataclass(frozen=True, slots=True)
class PlacementConstraints:
    """Declarative constraints; the default asks for nothing.

    Attributes
    ----------
    pins:
        ``(layer, rank)``: the layer runs on the rank.
    same_rank, different_rank:
        Groups of layers that share one rank; groups whose members are on pairwise different ranks.
    same_stage:
        ``[first, end)`` layers without a stage boundary between them.
    boundary_after:
        Layers that end a stage.
    max_in_flight:
        ``(rank, microbatches)`` with live activations at most. This limits the order, not the placement.
    """

    pins: tuple[tuple[int, int], ...] = ()
    same_rank: tuple[tuple[int, ...], ...] = ()
    different_rank: tuple[tuple[int, ...], ...] = ()
    same_stage: tuple[tuple[int, int], ...] = ()
    boundary_after: tuple[int, ...] = ()
    stages_per_rank: StagesPerRank = field(default=StagesPerRank())
    max_in_flight: tuple[tuple[int, int], ...] = ()

    @property
    def restricts_placement(self) -> bool:
        """False if every partition and placement is allowed."""
        groups = self.pins, self.same_rank, self.different_rank, self.same_stage, self.boundary_after
        return any(groups) or self.stages_per_rank != StagesPerRank()

    def rank_max_in_flight(self, num_ranks: int, num_microbatches: int) -> IntArray:
        """Return ``(R,)`` microbatches that may be in flight on each rank."""
        limit = np.full(num_ranks, num_microbatches, dtype=np.int64)
        for rank, microbatches in self.max_in_flight:
            limit[rank] = min(limit[rank], microbatches)
        return limit

    def violations(self, assignment: Assignment, layer_names: Sequence[str] = ()) -> list[str]:
        """Return one line for each constraint that the assignment breaks; none if it keeps them all."""
        if not self.restricts_placement:
            return []
        return [
            *self._rank_violations(assignment, layer_names),
            *self._boundary_violations(assignment, layer_names),
            *self._count_violations(assignment),
        ]

    def _rank_violations(self, assignment: Assignment, names: Sequence[str]) -> Iterator[str]:
        rank_of = layer_ranks(assignment)
        for layer, rank in self.pins:
            if rank_of[layer] != rank:
                yield f"{pin_text(layer, rank, names)}: it is on rank {rank_of[layer]}"
        for group in self.same_rank:
            if len({rank_of[layer] for layer in group}) > 1:
                yield f"{same_rank_text(group, names)}: they are on {_ranks_text(group, rank_of)}"
        for group in self.different_rank:
            if any(rank_of[one] == rank_of[other] for one, other in combinations(group, 2)):
                yield f"{different_rank_text(group, names)}: they are on {_ranks_text(group, rank_of)}"

    def _boundary_violations(self, assignment: Assignment, names: Sequence[str]) -> Iterator[str]:
        ends = {end for _, end in assignment.boundaries}
        for first, end in self.same_stage:
            if ends.intersection(range(first + 1, end)):
                yield f"{same_stage_text(first, end, names)}: a stage ends between them"
        for layer in self.boundary_after:
            if layer + 1 not in ends:
                yield f"{boundary_text(layer, names)}: no stage ends there"

    def _count_violations(self, assignment: Assignment) -> Iterator[str]:
        counts = np.bincount(assignment.ranks).tolist()
        rule = self.stages_per_rank
        for rank, count in enumerate(counts):
            if count < rule.min:
                yield f"{min_stages_text(rule.min, rank)}: it holds {count}"
            if rule.max is not None and count > rule.max:
                yield f"{max_stages_text(rule.max, rank)}: it holds {count}"
        if rule.equal and len(set(counts)) > 1:
            yield f"{EQUAL_STAGES_TEXT}: they hold {counts}"


def layer_ranks(assignment: Assignment) -> list[int]:
    """Return the rank of every layer."""
    stages = zip(assignment.boundaries, assignment.ranks, strict=True)
    return [rank for (first, end), rank in stages for _ in range(first, end)]


#: How each constraint is named to users: in violations and in the conflicts that explain infeasibility.
EQUAL_STAGES_TEXT = "an equal number of stages on every rank"
RANKS_USED_TEXT = "a stage on every rank"


def layer_text(layer: int, names: Sequence[str]) -> str:
    """Return a layer's name, or its number where there are no names."""
    return f"layer {names[layer]!r}" if names else f"layer {layer}"


def pin_text(layer: int, rank: int, names: Sequence[str]) -> str:
    """Name a pin."""
    return f"pin of {layer_text(layer, names)} to rank {rank}"


def same_rank_text(group: Sequence[int], names: Sequence[str]) -> str:
    """Name a group that shares a rank."""
    return f"same rank for {_group_text(group, names)}"


def different_rank_text(group: Sequence[int], names: Sequence[str]) -> str:
    """Name a group on different ranks."""
    return f"different ranks for {_group_text(group, names)}"


def same_stage_text(first: int, end: int, names: Sequence[str]) -> str:
    """Name a run of layers without a boundary."""
    return f"same stage for {layer_text(first, names)} to {layer_text(end - 1, names)}"


def boundary_text(layer: int, names: Sequence[str]) -> str:
    """Name a boundary that is asked for."""
    return f"stage boundary after {layer_text(layer, names)}"


def min_stages_text(count: int, rank: int) -> str:
    """Name the least number of stages of a rank."""
    return f"at least {count} stages on rank {rank}"


def max_stages_text(count: int, rank: int) -> str:
    """Name the largest number of stages of a rank."""
    return f"at most {count} {'stage' if count == 1 else 'stages'} on rank {rank}"


def _group_text(group: Sequence[int], names: Sequence[str]) -> str:
    return " and ".join(layer_text(layer, names) for layer in group)


def _ranks_text(group: Sequence[int], rank_of: Sequence[int]) -> str:
    return "ranks " + ", ".join(str(rank_of[layer]) for layer in group)
