"""Measured against predicted, kind by kind: which ops a prediction gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from octoplan_runtime.trace import Op
from octoplan_schemas import parse_word


@dataclass(frozen=True, slots=True)
class KindReport:
    """Mean seconds of the ops of one kind; of a SEND, from its start to its arrival."""

    count: int
    measured_s: float
    predicted_s: float
    #: Measured over predicted, less one; None where nothing was predicted to take time.
    relative_error: float | None


def compare_kinds(measured: Sequence[Op], predicted: Sequence[Op]) -> dict[str, KindReport]:
    """Compare every kind of op that was predicted."""
    found, expected = _durations(measured), _durations(predicted)
    return {
        kind: _report(found[kind], expected[kind])
        for kind in sorted(expected)
        if len(found.get(kind, ())) > 0
    }


def _report(measured: Sequence[float], predicted: Sequence[float]) -> KindReport:
    found_s, expected_s = fmean(measured), fmean(predicted)
    error = found_s / expected_s - 1 if expected_s > 0 else None
    return KindReport(len(measured), found_s, expected_s, error)


def _durations(ops: Sequence[Op]) -> dict[str, list[float]]:
    durations: dict[str, list[float]] = {}
    for _, word, start, end in ops:
        durations.setdefault(parse_word(word).kind, []).append(end - start)
    return durations
