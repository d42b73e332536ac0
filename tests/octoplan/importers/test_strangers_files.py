"""Whatever a stranger writes into a field: a graph or one line, never another exception."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octoplan.importers import import_model
from octoplan_schemas import InputError, ModelGraph

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted((EXAMPLES / "configs").glob("*.json")) + sorted((EXAMPLES / "profiles").glob("*.json"))
DOCUMENTS = {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in FILES}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 200)
    | st.sampled_from([10**6, 10**9, 10**10, 10**30, 10**400, -(10**400)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
)


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_value_in_any_field(name: str, tmp_path: Path, data: st.DataObject) -> None:
    document: dict[str, Any] = copy.deepcopy(DOCUMENTS[name])
    target = document.get("text_config", document)
    for key in data.draw(st.lists(st.sampled_from(sorted(target)), min_size=1, max_size=2)):
        target[key] = data.draw(VALUES)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    try:
        graph = import_model(path)
    except InputError as error:
        text = str(error)
        assert text.startswith(str(path))
        assert "\n" not in text
    else:
        assert ModelGraph.from_document(json.loads(json.dumps(graph.to_document()))) == graph
