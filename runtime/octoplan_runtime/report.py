"""What a run reports: the object of ``--json`` (contract, section 6) and the lines for people."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from octoplan_runtime.kinds import KindReport


@dataclass(frozen=True, slots=True)
class RankReport:
    """One rank: what it held, how long it was busy in the last step (seconds), how much memory received tensors
    took at once (bytes), and its largest gradient error."""

    rank: int
    stages: list[int]
    num_layers: int
    num_parameters: int
    busy_s: float
    idle_s: float
    receive_buffer_bytes: int
    max_relative_gradient_error: float | None
    worst_parameter: str | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """A whole run. Times are those of the last step, in seconds; errors are None without ``--verify``."""

    loss: float | None
    losses: list[float | None]
    max_relative_gradient_error: float | None
    max_relative_loss_error: float | None
    tolerance: float | None
    gradients_match: bool | None
    worst_parameter: str | None
    measured_makespan_s: float
    predicted_makespan_s: float
    #: Factor on the plan's times that emulated devices slept.
    scale: float
    #: Measured against predicted, by kind of op; empty where the plan records no costs.
    kinds: dict[str, KindReport]
    ranks: list[RankReport]
    #: ``[rank, word, start_s, end_s]`` of every word of the last step.
    ops: list[tuple[int, str, float, float]]

    def to_json(self, *, timeline: bool = True) -> str:
        """Write one JSON object; what is not finite becomes null."""
        document = asdict(self)
        if not timeline:
            del document["ops"]
        return json.dumps(_finite(document), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunReport:
        """Read what `to_json` wrote with its timeline."""
        document = json.loads(text)
        document["ranks"] = [RankReport(**rank) for rank in document["ranks"]]
        document["kinds"] = {kind: KindReport(**row) for kind, row in document["kinds"].items()}
        document["ops"] = [tuple(op) for op in document["ops"]]
        return cls(**{field.name: document[field.name] for field in fields(cls)})

    def lines(self) -> list[str]:
        """Return the report for people; the last line is the verdict if there was a comparison."""
        rows = [["rank", "stages", "layers", "parameters", "busy", "idle", "gradient error"]]
        rows += [_row(rank) for rank in self.ranks]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        lines.append(
            f"makespan of the last step: {self.measured_makespan_s:.4g} s here, "
            f"{self.predicted_makespan_s:.4g} s predicted{self._scale_note()}"
        )
        return lines + self._verdict()

    def _scale_note(self) -> str:
        return (
            " for the plan's devices" if self.scale == 1.0 else f" at {self.scale:.4g} times the plan's times"
        )

    def _verdict(self) -> list[str]:
        if self.gradients_match is None:
            return []
        limit = f"at most {self.tolerance:g} is allowed"
        error = _shown(self.max_relative_gradient_error)
        if self.gradients_match:
            return [f"largest relative error of a gradient: {error} ({limit})", "gradients match"]
        return [
            f"gradients differ: {self.worst_parameter} by {error}, the loss by "
            f"{_shown(self.max_relative_loss_error)} (relative; {limit})"
        ]


def _row(rank: RankReport) -> list[str]:
    error = rank.max_relative_gradient_error
    return [
        str(rank.rank),
        str(len(rank.stages)),
        str(rank.num_layers),
        f"{rank.num_parameters:,}",
        f"{rank.busy_s:.4g} s",
        f"{rank.idle_s:.4g} s",
        "-" if rank.worst_parameter is None else _shown(error),
    ]


def _shown(error: float | None) -> str:
    return "infinity" if error is None else f"{error:.2g}"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
