"""Reads what ``octoplan run --trace`` writes: the measured times of one step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octoplan_schemas import InputError, Plan
from octoplan_schemas.base import check_format
from octoplan_schemas.files import read_json

FORMAT = "octoplan.trace/1"


@dataclass(frozen=True, slots=True)
class Trace:
    """Measured times.

    Attributes
    ----------
    scale:
        Factor on the plan's times that the run was made with.
    ops:
        ``(rank, word, start_s, end_s)`` of every compute op and every SEND, from the start of the first op.
    """

    scale: float
    ops: tuple[tuple[int, str, float, float], ...]


def load_trace(path: str | Path, plan: Plan) -> Trace:
    """Read the trace of a plan's run.

    Raises
    ------
    InputError
        If the file is not a trace, or is one of another plan.
    """
    document = read_json(path)
    check_format(document, FORMAT, str(path))
    recorded = document.get("plan")
    if not isinstance(recorded, dict) or recorded.get("sha256") != plan.sha256():
        raise InputError("is a trace of another plan", source=str(path), field="plan.sha256")
    words = [{word for word in program if "RECV" not in word} for program in plan.programs]
    rows = document.get("ops")
    if not isinstance(rows, list) or [set(found) for found in _words(rows, len(words))] != words:
        raise InputError("must list every compute op and SEND of the plan", source=str(path), field="ops")
    scale = document.get("scale")
    if not isinstance(scale, int | float) or not scale > 0:
        raise InputError(f"must be above 0, not {scale!r}", source=str(path), field="scale")
    return Trace(
        float(scale), tuple((rank, word, float(start), float(end)) for rank, word, start, end in rows)
    )


def _words(rows: list[Any], num_ranks: int) -> list[list[str]]:
    """Return the words of every rank; a row of another form puts a word where none can be."""
    words: list[list[str]] = [[] for _ in range(num_ranks)]
    for row in rows:
        match row:
            case [int(rank), str(word), int() | float(), int() | float()] if 0 <= rank < num_ranks:
                words[rank].append(word)
            case _:
                words[0].append("")
    return words
