"""`PlacementConstraints.violations`: what keeps and what breaks each constraint."""

from __future__ import annotations

from typing import Any

import pytest

from octoplan_solvers.constraints import PlacementConstraints, StagesPerRank
from octoplan_solvers.problem import Assignment

#: Six layers on three ranks: a bc d ef.
ASSIGNMENT = Assignment.from_sizes([1, 2, 1, 2], [0, 1, 2, 0])


@pytest.mark.parametrize(
    ("kept", "broken", "message"),
    [
        ({"pins": ((4, 0),)}, {"pins": ((4, 1),)}, "pin of layer 'e' to rank 1: it is on rank 0"),
        (
            {"same_rank": ((0, 4, 5),)},
            {"same_rank": ((0, 3),)},
            "same rank for layer 'a' and layer 'd': they are on ranks 0, 2",
        ),
        (
            {"different_rank": ((0, 1, 3),)},
            {"different_rank": ((0, 1, 5),)},
            "different ranks for layer 'a' and layer 'b' and layer 'f': they are on ranks 0, 1, 0",
        ),
        (
            {"same_stage": ((1, 3),)},
            {"same_stage": ((1, 4),)},
            "same stage for layer 'b' to layer 'd': a stage ends between them",
        ),
        (
            {"boundary_after": (0, 2, 3, 5)},
            {"boundary_after": (1,)},
            "stage boundary after layer 'b': no stage ends there",
        ),
        (
            {"stages_per_rank": StagesPerRank(min=1, max=2)},
            {"stages_per_rank": StagesPerRank(max=1)},
            "at most 1 stage on rank 0: it holds 2",
        ),
        (
            {"stages_per_rank": StagesPerRank(min=1)},
            {"stages_per_rank": StagesPerRank(equal=True)},
            "an equal number of stages on every rank: they hold [2, 1, 1]",
        ),
    ],
)
def test_each_constraint(kept: dict[str, Any], broken: dict[str, Any], message: str) -> None:
    assert PlacementConstraints(**kept).violations(ASSIGNMENT, "abcdef") == []
    assert PlacementConstraints(**broken).violations(ASSIGNMENT, "abcdef") == [message]


def test_every_rank_below_the_least_count_is_named() -> None:
    constraints = PlacementConstraints(stages_per_rank=StagesPerRank(min=2))
    assert constraints.violations(ASSIGNMENT) == [
        "at least 2 stages on rank 1: it holds 1",
        "at least 2 stages on rank 2: it holds 1",
    ]


def test_neighbouring_stages_of_one_rank_are_stages() -> None:
    cut = Assignment.from_sizes([1, 1, 2, 2], [0, 0, 1, 1])
    asked = PlacementConstraints(boundary_after=(0,), stages_per_rank=StagesPerRank(min=2, equal=True))
    assert asked.violations(cut) == []
    assert PlacementConstraints(same_stage=((0, 2),)).violations(cut) == [
        "same stage for layer 0 to layer 1: a stage ends between them"
    ]


def test_several_at_once() -> None:
    asked = PlacementConstraints(pins=((0, 1), (1, 1)), boundary_after=(1,), max_in_flight=((0, 1),))
    assert len(asked.violations(ASSIGNMENT)) == 2


def test_layers_and_ranks_round_trip() -> None:
    assert Assignment.from_layer_ranks([0, 1, 1, 2, 0, 0]) == ASSIGNMENT
    assert Assignment.from_layer_ranks([0, 0, 1], cuts={1}).boundaries == ((0, 1), (1, 2), (2, 3))
