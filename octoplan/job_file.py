"""``--job FILE``: options and constraints of a compilation, as JSON or YAML (contract, section 7)."""

from __future__ import annotations

from pathlib import Path

from octoplan.yaml_file import read_yaml_or_json
from octoplan_schemas import Job


def load_job(path: str | Path) -> Job:
    """Read a job file; the ending ``.json`` means JSON, anything else YAML (of which JSON is a part).

    Raises
    ------
    InputError
        If the file is missing, malformed, or does not fit the schema.
    """
    return Job.from_document(read_yaml_or_json(path), source=str(path))
