"""Documents are strict: what the contract does not know is refused, in one line that names the field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from octoplan_schemas import Cluster, InputError, Job, ModelGraph, Plan
from octoplan_schemas.base import Document
from octoplan_schemas.json_schema import DOCUMENTS
from tests.schemas.documents import (
    EXAMPLE_CLUSTER,
    EXAMPLE_JOB,
    EXAMPLE_LAYER,
    EXAMPLE_MODEL,
    EXAMPLE_PLAN,
    EXAMPLES,
    at,
    places,
    replaced,
)

KINDS = sorted(DOCUMENTS)
OBJECTS = [
    (kind, path)
    for kind in KINDS
    for path in places(EXAMPLES[kind])
    if isinstance(at(EXAMPLES[kind], path), dict)
    and path[-1:] not in [("provenance",), ("cost",), ("device_types",)]
]
NUMBERS = [
    (kind, path)
    for kind in KINDS
    for path in places(EXAMPLES[kind])
    if isinstance(at(EXAMPLES[kind], path), int | float)
]


def refusal(kind: type[Document], document: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        kind.from_document(document, source="file.json")
    assert str(caught.value).startswith("file.json: ")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_valid(kind: str) -> None:
    assert DOCUMENTS[kind].from_document(EXAMPLES[kind]).to_document() == EXAMPLES[kind]


@pytest.mark.parametrize(("kind", "path"), OBJECTS)
def test_unknown_field_is_refused_everywhere(kind: str, path: tuple[Any, ...]) -> None:
    target = at(EXAMPLES[kind], path)
    error = refusal(DOCUMENTS[kind], replaced(EXAMPLES[kind], path, {**target, "surplus": 1}))
    if "constraints" not in path:
        assert error.field == ".".join(map(str, (*path, "surplus")))
        assert "unknown field" in error.message


def test_provenance_takes_what_tools_know() -> None:
    known = {"strategy": "octoplan", "trace": [{"step": 1, "moves": [1, 2.5, None]}]}
    plan = Plan.from_document({**EXAMPLE_PLAN, "provenance": known})
    assert plan.to_document()["provenance"] == known


@pytest.mark.parametrize(("kind", "path"), NUMBERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", True, None, [1]])
def test_what_is_no_finite_number_is_refused(kind: str, path: tuple[Any, ...], value: Any) -> None:
    nullable = {"gap", "lower_bound_s", "microbatches"} if kind != "plan" else {"gap", "lower_bound_s"}
    if (value is None and path[-1] in nullable) or (value == "1" and path[-1] == "from"):
        DOCUMENTS[kind].from_document(replaced(EXAMPLES[kind], path, None if value is None else "d0"))
        return
    error = refusal(DOCUMENTS[kind], replaced(EXAMPLES[kind], path, value))
    assert error.field == ".".join(map(str, path))


@pytest.mark.parametrize(("kind", "path"), NUMBERS)
def test_negative_numbers_are_refused(kind: str, path: tuple[Any, ...]) -> None:
    if path[-1] in ("gap", "bubble_fraction"):
        return
    error = refusal(DOCUMENTS[kind], replaced(EXAMPLES[kind], path, -1))
    assert error.field is None or ".".join(map(str, path)).startswith(error.field)
    assert "-1" in error.message


def test_an_integer_beyond_floats_is_refused() -> None:
    document = replaced(EXAMPLE_MODEL, ("layers", 0, "state_bytes"), 10**400)
    assert "finite" in refusal(ModelGraph, document).message


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_free_fields_hold_no_nan_either(number: float) -> None:
    document = {**EXAMPLE_PLAN, "provenance": {"strategy": "x", "score": [number]}}
    assert "finite" in refusal(Plan, document).message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("found", "is_known"),
    [
        ("octoplan.KIND/1", True),
        ("octoplan.KIND/1.0", True),
        ("octoplan.KIND/1.12", True),
        ("octoplan.KIND/2", False),
        ("octoplan.KIND/10", False),
        ("octoplan.KIND/1.", False),
        ("octoplan.KIND/1.x", False),
        ("octoplan.KIND", False),
        ("octoplanXKIND/1", False),
        ("octoplan.other/1", False),
        ("", False),
        (1, False),
        (None, False),
    ],
)
def test_major_format(kind: str, found: Any, is_known: bool) -> None:
    written = found.replace("KIND", kind) if isinstance(found, str) else found
    document = {**EXAMPLES[kind], "format": written}
    if is_known:
        assert DOCUMENTS[kind].from_document(document).to_document() == document
        return
    error = refusal(DOCUMENTS[kind], document)
    assert error.field == "format"
    assert f"octoplan.{kind}/1" in error.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("document", [None, [], "x", 3, True])
def test_only_objects_are_documents(kind: str, document: Any) -> None:
    assert "JSON object" in refusal(DOCUMENTS[kind], document).message


@pytest.mark.parametrize("kind", KINDS)
def test_format_must_be_there(kind: str) -> None:
    document = {key: value for key, value in EXAMPLES[kind].items() if key != "format"}
    assert refusal(DOCUMENTS[kind], document).field == "format"


@pytest.mark.parametrize(
    ("kind", "document", "field", "words"),
    [
        (ModelGraph, {**EXAMPLE_MODEL, "layers": []}, "layers", "1 item"),
        (ModelGraph, {**EXAMPLE_MODEL, "layers": [EXAMPLE_LAYER] * 2, "skips": []}, None, "'a' occurs twice"),
        (
            ModelGraph,
            replaced(EXAMPLE_MODEL, ("layers", 1, "retained_bytes"), 5),
            "layers.1",
            "must not exceed",
        ),
        (ModelGraph, replaced(EXAMPLE_MODEL, ("layers", 1, "cost"), {}), "layers.1.cost", "1 item"),
        (ModelGraph, replaced(EXAMPLE_MODEL, ("layers", 1, "name"), ""), "layers.1.name", "1 character"),
        (ModelGraph, replaced(EXAMPLE_MODEL, ("skips", 0, "to"), "z"), None, "no layer is called 'z'"),
        (ModelGraph, replaced(EXAMPLE_MODEL, ("skips", 0, "to"), "a"), None, "later layer"),
        (ModelGraph, replaced(EXAMPLE_MODEL, ("tied", 0, 1), "z"), None, "no layer is called 'z'"),
        (
            ModelGraph,
            {**EXAMPLE_MODEL, "skips": [{"from_layer": "a", "to": "c", "bytes": 5}]},
            "skips.0.from",
            "missing",
        ),
        (Cluster, {**EXAMPLE_CLUSTER, "devices": []}, "devices", "1 item"),
        (Cluster, replaced(EXAMPLE_CLUSTER, ("devices", 1, "type"), "y"), None, "devices.1.type: 'y'"),
        (Cluster, replaced(EXAMPLE_CLUSTER, ("devices", 1, "name"), "d0"), None, "'d0' occurs twice"),
        (Cluster, replaced(EXAMPLE_CLUSTER, ("links", "pairs", 0, "to"), 2), None, "2 is neither"),
        (Cluster, replaced(EXAMPLE_CLUSTER, ("links", "pairs", 0, "to"), "d0"), None, "same device"),
        (
            Cluster,
            replaced(EXAMPLE_CLUSTER, ("links", "inter_node", "bandwidth"), 0),
            "links.inter_node.bandwidth",
            "above 0",
        ),
        (Plan, replaced(EXAMPLE_PLAN, ("job", "microbatches"), 0), "job.microbatches", "not 0"),
        (Plan, replaced(EXAMPLE_PLAN, ("job", "microbatches"), 1.5), "job.microbatches", "not 1.5"),
        (Plan, replaced(EXAMPLE_PLAN, ("job", "memory_limit"), -5), "job.memory_limit", "not -5"),
        (Plan, replaced(EXAMPLE_PLAN, ("job", "backward"), "both"), "job.backward", "not 'both'"),
        (Plan, replaced(EXAMPLE_PLAN, ("stages", 0, "layers"), [0]), "stages.0.layers.1", "missing"),
        (Plan, replaced(EXAMPLE_PLAN, ("programs", 0, 2), 3), "programs.0.2", "not 3"),
        (Job, {**EXAMPLE_JOB, "constraints": [{}]}, "constraints.0", "exactly one key"),
        (Job, {**EXAMPLE_JOB, "constraints": [{"pin": None}]}, "constraints.0", "exactly one key"),
        (
            Job,
            {**EXAMPLE_JOB, "constraints": [{"boundary_after": "a", "same_rank": ["a", "b"]}]},
            "constraints.0",
            "exactly one key",
        ),
        (Job, {**EXAMPLE_JOB, "target": "elsewhere"}, "target", "not 'elsewhere'"),
    ],
)
def test_contradictions_are_refused(
    kind: type[Document], document: Any, field: str | None, words: str
) -> None:
    error = refusal(kind, document)
    assert error.field == field
    assert words in error.message


def test_several_problems_are_counted() -> None:
    document = {**EXAMPLE_CLUSTER, "devices": [], "name": ""}
    assert "(1 more problem)" in refusal(Cluster, document).message


def test_what_json_cannot_hold_is_refused() -> None:
    import datetime

    document = {**EXAMPLE_JOB, "strategy": datetime.date(2020, 1, 1)}
    assert "JSON cannot" in refusal(Job, document).message


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_frozen(kind: str) -> None:
    document = DOCUMENTS[kind].from_document(EXAMPLES[kind])
    for field in type(document).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(document, field, getattr(document, field))


def test_inner_objects_are_frozen_and_lists_are_tuples() -> None:
    model = ModelGraph.from_document(EXAMPLE_MODEL)
    with pytest.raises(ValidationError, match="frozen"):
        model.layers[0].state_bytes = 3  # type: ignore[misc]
    assert isinstance(model.layers, tuple)
    assert isinstance(Plan.from_document(EXAMPLE_PLAN).programs[0], tuple)


def test_reading_leaves_the_given_document_alone() -> None:
    document = copy.deepcopy(EXAMPLE_PLAN)
    Plan.from_document(document)
    assert document == EXAMPLE_PLAN


def test_links_by_node_and_by_pair() -> None:
    table = Cluster.from_document(EXAMPLE_CLUSTER).link_table()
    assert (table[0][1].latency_s, table[0][1].bandwidth) == (1, 2)
    assert (table[1][0].latency_s, table[1][0].bandwidth) == (1e-5, 1e10)


def test_cost_by_name_or_by_star() -> None:
    named = {"forward_s": 7, "backward_input_s": 7, "backward_weight_s": 7}
    document = replaced(EXAMPLE_MODEL, ("layers", 0, "cost"), {**EXAMPLE_LAYER["cost"], "x": named})
    layer = ModelGraph.from_document(document).layers[0]
    chosen, other = layer.cost_on("x"), layer.cost_on("y")
    assert chosen is not None
    assert other is not None
    assert (chosen.forward_s, other.forward_s) == (7, 1)
    only = ModelGraph.from_document(replaced(EXAMPLE_MODEL, ("layers", 0, "cost"), {"x": named})).layers[0]
    assert only.cost_on("y") is None
