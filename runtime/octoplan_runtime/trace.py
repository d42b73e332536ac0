"""Measured times of one step as a file, in the form of the simulator's timeline, for ``octoplan show --measured``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octoplan_schemas import Plan, parse_word
from octoplan_schemas.files import write_text

FORMAT = "octoplan.trace/1"
#: ``(rank, word, start_s, end_s)``
Op = tuple[int, str, float, float]


def shifted(ops: Sequence[Op]) -> list[Op]:
    """Count time from the start of the first compute op."""
    origin_s = min(start for _, word, start, _ in ops if parse_word(word).is_compute)
    return [(rank, word, start - origin_s, end - origin_s) for rank, word, start, end in ops]


def timeline_ops(ops: Sequence[Op]) -> list[Op]:
    """Return the compute ops and the SENDs: what the simulator's timeline has."""
    return [op for op in ops if (word := parse_word(op[1])).is_compute or word.is_send]


def write_trace(
    path: str | Path, plan: Plan, ops: Sequence[Op], predicted: Sequence[Op], scale: float
) -> None:
    """Write a whole file or none.

    Parameters
    ----------
    path:
        Where to.
    plan:
        What was run; the file holds its hash.
    ops:
        Measured times of every word, in seconds.
    predicted:
        What they were compared with; empty where nothing was.
    scale:
        Factor on the plan's times that the step ran with.
    """
    document: dict[str, Any] = {
        "format": FORMAT,
        "plan": {"name": plan.model.name, "sha256": plan.sha256()},
        "scale": scale,
        "ops": timeline_ops(ops),
        "predicted_ops": list(predicted),
    }
    write_text(path, json.dumps(document, allow_nan=False) + "\n")
