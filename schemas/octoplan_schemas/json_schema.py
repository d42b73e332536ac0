"""Write the JSON Schema files of the contract: ``python -m octoplan_schemas.json_schema DIRECTORY``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from octoplan_schemas.base import Document
from octoplan_schemas.cluster import Cluster
from octoplan_schemas.job import Job
from octoplan_schemas.model import ModelGraph
from octoplan_schemas.plan import Plan
from octoplan_schemas.study import Study

DOCUMENTS: dict[str, type[Document]] = {
    "model": ModelGraph,
    "cluster": Cluster,
    "plan": Plan,
    "job": Job,
    "study": Study,
}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one document kind: ``model``, ``cluster``, ``plan``, ``job`` or ``study``."""
    kind = DOCUMENTS[name]
    schema = kind.model_json_schema(by_alias=True)
    schema["properties"]["format"] = {"type": "string", "pattern": f"^{re.escape(kind.FORMAT)}(\\.[0-9]+)?$"}
    schema["required"] = ["format", *(field for field in schema.get("required", []) if field != "format")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": kind.FORMAT, **schema}


def main(directory: str) -> None:
    """Write ``NAME.schema.json`` for every document kind."""
    for name in DOCUMENTS:
        text = json.dumps(json_schema(name), indent=2, sort_keys=True) + "\n"
        Path(directory, f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
