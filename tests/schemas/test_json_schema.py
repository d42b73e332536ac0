"""The JSON Schema files: in step with the models, and no stricter than they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan_schemas import InputError
from octoplan_schemas.json_schema import DOCUMENTS, json_schema, main
from tests.schemas import documents
from tests.schemas.documents import EXAMPLES, at, places, replaced

FOLDER = Path(__file__).parents[2] / "schemas" / "json"
KINDS = sorted(DOCUMENTS)
VALIDATORS = {
    kind: jsonschema.Draft202012Validator(json.loads((FOLDER / f"{kind}.schema.json").read_text()))
    for kind in KINDS
}


def test_files_are_those_that_the_models_give(tmp_path: Path) -> None:
    main(str(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in FOLDER.iterdir())
    for name in names:
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text(), f"run `make schemas` for {name}"


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_valid_schemas(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(VALIDATORS[kind].schema)
    assert VALIDATORS[kind].schema == json_schema(kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_schema_accepts_every_valid_document(kind: str, data: st.DataObject) -> None:
    document = data.draw(documents.DOCUMENTS[kind])
    DOCUMENTS[kind].from_document(document)
    VALIDATORS[kind].validate(document)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_schema_accepts_whatever_the_model_accepts(kind: str, data: st.DataObject) -> None:
    document = data.draw(documents.spoiled(EXAMPLES[kind]))
    try:
        DOCUMENTS[kind].from_document(document)
    except InputError:
        return
    VALIDATORS[kind].validate(document)


def bad_documents() -> list[tuple[str, str, Any]]:
    """One broken document per object (surplus field, missing field) and per number (negative, text)."""
    optional = {"skips", "tied", "pairs", "constraints", "microbatches", "memory_limit"}
    found: list[tuple[str, str, Any]] = []
    for kind in KINDS:
        example = EXAMPLES[kind]
        for path in places(example):
            value, where = at(example, path), ".".join(map(str, path))
            if isinstance(value, dict) and path[-1:] not in [("provenance",), ("cost",), ("device_types",)]:
                found.append((kind, f"{where} surplus", replaced(example, path, {**value, "surplus": 1})))
                for key in value:
                    if key not in optional or kind == "plan":
                        less = {name: item for name, item in value.items() if name != key}
                        found.append((kind, f"{where} without {key}", replaced(example, path, less)))
            if isinstance(value, int | float):
                if path[-1] not in ("gap", "bubble_fraction", "from"):
                    found.append((kind, f"{where} negative", replaced(example, path, -1)))
                found.append((kind, f"{where} list", replaced(example, path, [1])))
        for other in ("octoplan.other/1", f"octoplan.{kind}/2", f"octoplanX{kind}/1", 1):
            found.append((kind, f"format {other}", {**example, "format": other}))
    return found


@pytest.mark.parametrize(("kind", "what", "document"), bad_documents(), ids=lambda value: str(value)[:40])
def test_both_refuse_a_broken_document(kind: str, what: str, document: Any) -> None:
    with pytest.raises(InputError):
        DOCUMENTS[kind].from_document(document)
    assert not VALIDATORS[kind].is_valid(document), what
