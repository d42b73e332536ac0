"""Reading a YAML or JSON file that may come from a stranger: values only, nothing it asks for is run."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from octoplan_schemas import InputError
from octoplan_schemas.files import parse_json, read_text


def read_yaml_or_json(path: str | Path) -> Any:
    """Parse a file; the ending ``.json`` means JSON, anything else YAML (of which JSON is a part).

    Raises
    ------
    InputError
        If the file is missing or malformed, or asks for more than values.
    """
    text, source = read_text(path), str(path)
    return parse_json(text, source=source) if source.endswith(".json") else parse_yaml(text, source)


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML without running anything it may ask for, and without its aliases (they can grow without end)."""
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InputError("YAML aliases are not supported; write the value out", source=source)
        return yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise InputError(f"is not valid YAML: {problem}{where}", source=source) from None
    except RecursionError:
        raise InputError("is nested too deeply", source=source) from None


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader; a key that occurs twice in one mapping is refused instead of overwritten."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} occurs twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


# YAML 1.1 takes 4e9 for text, for want of a dot; JSON and people take it for a number.
_UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
