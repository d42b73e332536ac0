"""How long a study will still take, from what its finished cells took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from octoplan.study.cells import Cell


def seconds_left(missing: Mapping[str, Cell], finished: Iterable[Mapping[str, Any]], jobs: int) -> float:
    """Return an estimate: each missing cell takes what its method's have taken so far, or else its time limit."""
    taken: dict[str, list[float]] = {}
    for record in finished:
        taken.setdefault(record["method"], []).append(record["seconds"])
    mean = {method: sum(seconds) / len(seconds) for method, seconds in taken.items()}
    return sum(mean.get(cell.method.name, cell.expected_s) for cell in missing.values()) / max(jobs, 1)
