"""Declarative constraints: from names to indices, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from octoplan.job_constraints import placement_constraints
from octoplan_schemas import Constraint, InputError, Job
from octoplan_solvers.constraints import PlacementConstraints, StagesPerRank
from octoplan_solvers.problem import Assignment

NAMES = ("embed", "a0", "m0", "a1", "m1", "head")


def _read(*entries: dict[str, Any], ranks: int = 3, most: int = 2) -> PlacementConstraints:
    constraints = [Constraint.model_validate_json(json.dumps(entry)) for entry in entries]
    return placement_constraints(constraints, NAMES, num_ranks=ranks, max_stages_per_rank=most)


def _refusal(*entries: dict[str, Any], **options: int) -> InputError:
    with pytest.raises(InputError) as caught:
        _read(*entries, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def test_nothing_asked() -> None:
    assert _read() == PlacementConstraints()
    assert not _read().restricts_placement


def test_names_become_indices() -> None:
    assert _read(
        {"pin": {"layers": ["embed", "head"], "rank": 2}},
        {"same_rank": ["a1", "a0"]},
        {"different_rank": ["embed", "a0"]},
        {"same_stage": ["m1", "a1"]},
        {"boundary_after": "m0"},
        {"stages_per_rank": {"min": 1, "max": 2, "equal": True}},
        {"max_in_flight": {"rank": 1, "microbatches": 3}},
    ) == PlacementConstraints(
        pins=((0, 2), (5, 2)),
        same_rank=((1, 3),),
        different_rank=((0, 1),),
        same_stage=((3, 5),),
        boundary_after=(2,),
        stages_per_rank=StagesPerRank(1, 2, True),
        max_in_flight=((1, 3),),
    )


def test_counts_are_joined() -> None:
    made = _read(
        {"stages_per_rank": {"min": 2}},
        {"stages_per_rank": {"max": 4}},
        {"stages_per_rank": {"max": 3, "equal": True}},
        ranks=2,
        most=4,
    )
    assert made.stages_per_rank == StagesPerRank(2, 3, True)


def test_max_in_flight_is_a_table_and_the_smaller_one_counts() -> None:
    made = _read(
        {"max_in_flight": {"rank": 1, "microbatches": 3}}, {"max_in_flight": {"rank": 1, "microbatches": 2}}
    )
    np.testing.assert_array_equal(made.rank_max_in_flight(3, 8), [8, 2, 8])
    assert not made.restricts_placement


def test_the_last_layer_ends_a_stage_anyway() -> None:
    made = _read({"boundary_after": "head"})
    assert made.violations(Assignment.from_sizes([2, 2, 2], [0, 1, 2])) == []


@pytest.mark.parametrize(
    ("entry", "field", "words"),
    [
        ({"pin": {"layers": ["embed", "nose"], "rank": 0}}, "pin.layers", "no layer 'nose'"),
        ({"pin": {"layers": ["embed"], "rank": 3}}, "pin.rank", "no rank 3; the cluster has ranks 0 to 2"),
        ({"max_in_flight": {"rank": 7, "microbatches": 1}}, "max_in_flight.rank", "no rank 7"),
        ({"same_rank": ["embed", "x"]}, "same_rank", "no layer 'x'"),
        ({"different_rank": ["embed", "x"]}, "different_rank", "no layer 'x'"),
        ({"different_rank": ["a0", "a0"]}, "different_rank", "'a0' twice"),
        ({"different_rank": ["embed", "a0", "m0", "a1"]}, "different_rank", "4 different ranks"),
        ({"same_stage": ["embed", "x"]}, "same_stage", "no layer 'x'"),
        ({"same_stage": ["a0", "a1"]}, "same_stage", "'a0' and 'a1' are not neighbours"),
        ({"boundary_after": "x"}, "boundary_after", "no layer 'x'"),
        ({"stages_per_rank": {"min": 3}}, "stages_per_rank.min", "max_stages_per_device is 2"),
        ({"stages_per_rank": {"min": 2, "max": 1}}, "stages_per_rank.min", "stages_per_rank.max is 1"),
    ],
)
def test_one_bad_entry_is_named(entry: dict[str, Any], field: str, words: str) -> None:
    error = _refusal({"boundary_after": "m0"}, entry)
    assert error.field == f"constraints.1.{field}"
    assert words in error.message


def test_more_stages_than_layers() -> None:
    error = _refusal({"stages_per_rank": {"min": 3}}, most=4)
    assert "6 layers; ask for 2 at most" in error.message


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        (
            {"pin": {"layers": ["a0"], "rank": 0}},
            {"pin": {"layers": ["m0", "a0"], "rank": 1}},
            "constraints.1.pin",
        ),
        ({"same_rank": ["a0", "head"]}, {"different_rank": ["head", "a0"]}, "constraints.1.different_rank"),
        ({"same_stage": ["a0", "m0"]}, {"different_rank": ["a0", "m0"]}, "constraints.1.different_rank"),
        (
            {"pin": {"layers": ["a0", "m0"], "rank": 1}},
            {"different_rank": ["a0", "m0"]},
            "constraints.1.different_rank",
        ),
        ({"same_stage": ["a0", "m0", "a1"]}, {"boundary_after": "m0"}, "constraints.1.boundary_after"),
        (
            {"stages_per_rank": {"min": 2}},
            {"stages_per_rank": {"max": 1}},
            "constraints.0.stages_per_rank.min",
        ),
    ],
)
def test_contradictions_name_both_entries(first: dict[str, Any], second: dict[str, Any], field: str) -> None:
    error = _refusal(first, second)
    assert error.field == field
    others = ("constraints.0", "constraints.1", "other constraints")
    assert any(other in error.message for other in others)


def test_pins_clash_along_a_chain_of_layers_that_share_a_rank() -> None:
    error = _refusal(
        {"pin": {"layers": ["embed"], "rank": 0}},
        {"same_rank": ["embed", "m0"]},
        {"same_stage": ["m0", "a1"]},
        {"pin": {"layers": ["a1"], "rank": 1}},
    )
    assert error.field == "constraints.3.pin"
    assert "constraints.0.pin" in error.message
    assert "'embed'" in error.message


def test_what_does_not_contradict_is_taken() -> None:
    made = _read(
        {"pin": {"layers": ["embed"], "rank": 0}},
        {"pin": {"layers": ["embed", "head"], "rank": 0}},
        {"same_rank": ["embed", "head"]},
        {"different_rank": ["embed", "a0", "m0"]},
        {"same_stage": ["m0", "a1", "m1"]},
        {"boundary_after": "m1"},
    )
    assert made.pins == ((0, 0), (5, 0))
    assert made.violations(Assignment.from_sizes([1, 1, 3, 1], [0, 1, 2, 0])) == []
    assert len(made.violations(Assignment.from_sizes([1, 2, 2, 1], [0, 1, 2, 1]))) == 4


def test_the_example_of_the_documentation_is_a_job() -> None:
    text = (Path(__file__).parents[2] / "docs" / "solvers.md").read_text()
    job = Job.from_document(yaml.safe_load(text.split("```yaml")[1].split("```")[0]))
    layers = ["embedding", *(f"layers.{index}.{part}" for index in range(4) for part in ("attention", "mlp"))]
    names = [*layers, "layers.0.moe", "layers.2.moe", "layers.15", "lm_head"]
    made = placement_constraints(job.constraints, names, num_ranks=2, max_stages_per_rank=4)
    assert len(job.constraints) == 6
    assert made.pins == ((0, 0), (len(names) - 1, 0))
    assert made.stages_per_rank == StagesPerRank(2, 4, True)
