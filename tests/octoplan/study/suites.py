"""Small suites for the tests of studies."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

from octoplan_schemas import Study

DIMENSIONS = ("partition", "placement", "order")
SUBSETS = [list(subset) for size in range(4) for subset in combinations(DIMENSIONS, size)]
TINY: dict[str, Any] = {"seeds": [0], "layers": [4], "ranks": [2]}


def make_suite(methods: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a suite document on one tiny random instance."""
    instances = [{"random": TINY, "microbatches": [3], "memory_limits": ["1f1b:1.5"]}]
    return {
        "format": "octoplan.study/1",
        "name": "tiny",
        "instances": instances,
        "methods": methods,
        "max_evaluations": [60],
        **fields,
    }


def broad_suite() -> dict[str, Any]:
    """Return a suite that has every kind of method, and all subsets of the dimensions."""
    methods: list[dict[str, Any]] = [{"name": "1f1b", "strategy": "1f1b"}]
    methods += [{"name": "1f1b:balanced", "strategy": "1f1b:balanced"}, {"name": "dp", "solver": "dp"}]
    methods += [{"name": "+".join(subset) or "nothing", "search": subset} for subset in SUBSETS]
    methods += [{"name": "rule", "rule": "octopipe"}, {"name": "octoplan", "strategy": "octoplan"}]
    random = {**TINY, "layers": [6], "ranks": [2, 3]}
    instances = [{"random": random, "microbatches": [4], "memory_limits": ["1f1b:1.0"]}]
    return make_suite(
        methods, name="broad", instances=instances, references=["1f1b", "1f1b:balanced"], seeds=[0, 1]
    )


def write_suite(folder: Path, document: dict[str, Any]) -> Path:
    """Write a suite file and return its path."""
    path = folder / "suite.json"
    path.write_text(json.dumps(document))
    return path


def parse(document: dict[str, Any]) -> Study:
    """Return the validated suite."""
    return Study.from_document(document)
