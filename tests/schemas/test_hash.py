"""Canonical JSON and its hash: computed another way, and unchanged by reading and writing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan_schemas import canonical_json, canonical_sha256, load, save
from octoplan_schemas.files import parse_json, to_text
from octoplan_schemas.json_schema import DOCUMENTS
from tests.schemas import documents


def written(value: Any) -> str:
    """Canonical JSON from its definition: sorted keys, no spaces, ASCII escapes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(map(escaped, value)) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(value[key])}" for key in sorted(value)) + "}"
    return "[" + ",".join(map(written, value)) + "]"


def escaped(letter: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
    if letter in short:
        return short[letter]
    if " " <= letter <= "~":
        return letter
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


@given(documents.json_values)
def test_canonical_json_follows_its_definition(value: Any) -> None:
    assert canonical_json(value) == written(value)


@pytest.mark.parametrize("kind", sorted(DOCUMENTS))
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_reading_changes_neither_value_nor_hash(kind: str, data: st.DataObject) -> None:
    document = data.draw(documents.DOCUMENTS[kind])
    expected = hashlib.sha256(canonical_json(document).encode()).hexdigest()
    read = DOCUMENTS[kind].from_document(document)
    assert read.sha256() == expected == canonical_sha256(document)
    again = parse_json(to_text(read))
    assert canonical_json(again) == canonical_json(document)
    assert next(iter(again)) == "format"


def test_hash_of_a_known_text() -> None:
    assert canonical_json({"b": [1, 1.0, "\u00e9"], "a": None}) == '{"a":null,"b":[1,1.0,"\\u00e9"]}'
    text = b'{"format":"octoplan.job/1","microbatches":8}'
    job = DOCUMENTS["job"].from_document({"microbatches": 8, "format": "octoplan.job/1"})
    assert job.sha256() == hashlib.sha256(text).hexdigest()


def test_ints_stay_ints_and_absent_fields_stay_absent(tmp_path: Path) -> None:
    document = documents.replaced(documents.EXAMPLE_PLAN, ("predicted", "gap"), 0)
    document = documents.replaced(document, ("predicted", "bubble_fraction"), 1)
    source = tmp_path / "in.json"
    source.write_text(json.dumps(document))
    plan = load(source, DOCUMENTS["plan"])
    save(tmp_path / "out.json", plan)
    assert (tmp_path / "out.json").read_text() == to_text(plan)
    kept = json.loads((tmp_path / "out.json").read_text())
    assert repr(kept["predicted"]["gap"]) == "0"
    assert "binding_bound" not in kept["predicted"]
    assert load(tmp_path / "out.json", DOCUMENTS["plan"]).sha256() == canonical_sha256(document)
