"""``--job FILE``: options and constraints of a compilation, as JSON or YAML (contract, section 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from octoplan_schemas import InputError, Job
from octoplan_schemas.files import parse_json, read_text


def load_job(path: str | Path) -> Job:
    """Read a job file; the ending ``.json`` means JSON, anything else YAML (of which JSON is a part).

    Raises
    ------
    InputError
        If the file is missing, malformed, or does not fit the schema.
    """
    text = read_text(path)
    source = str(path)
    document = parse_json(text, source=source) if source.endswith(".json") else _parse_yaml(text, source)
    return Job.from_document(document, source=source)


def _parse_yaml(text: str, source: str) -> Any:
    """Parse YAML without running anything it may ask for, and without its aliases (they can grow without end)."""
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InputError("YAML aliases are not supported; write the value out", source=source)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise InputError(f"is not valid YAML: {problem}{where}", source=source) from None
    except RecursionError:
        raise InputError("is nested too deeply", source=source) from None
