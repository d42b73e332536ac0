"""`export_plan`: a plan as a file that another engine or viewer reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octoplan.checking import checked_programs
from octoplan.exports import megatron, perfetto, torch_csv, torchtitan
from octoplan.exports.request import ExportRequest
from octoplan.problem_builder import require_same_inputs
from octoplan_schemas import Cluster, InputError, ModelGraph, Plan
from octoplan_schemas.files import write_text

#: Exporters by format: each returns the text of every file that it asks to be written.
EXPORTERS: dict[str, Callable[[ExportRequest], dict[Path, str]]] = {
    module.FORMAT: module.files for module in (torch_csv, torchtitan, megatron, perfetto)
}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the format's name, and the files, the one asked for first."""

    to: str
    files: tuple[Path, ...]


def export_plan(
    plan: Plan,
    to: str,
    path: str | Path,
    *,
    model: ModelGraph | None = None,
    cluster: Cluster | None = None,
) -> Exported:
    """Write a plan for another engine or viewer; all files are written, or none.

    Parameters
    ----------
    to:
        ``torch-csv``, ``torchtitan``, ``megatron`` or ``perfetto``.
    path:
        The file; torchtitan's settings go beside it.
    model, cluster:
        ``torchtitan`` and ``megatron`` need the model. ``perfetto`` simulates with both instead of with the costs
        that the plan records, and names devices.

    Raises
    ------
    InputError
        If the format is unknown, the plan is not valid, or was made for another model or cluster, or a file cannot
        be written.
    InfeasibleError
        If the engine cannot run the plan; ``--target`` compiles one that it can.
    """
    if to not in EXPORTERS:
        raise InputError(f"{to!r} is not a format; there are: {', '.join(EXPORTERS)}", field="to")
    require_same_inputs(plan, model, cluster)
    request = ExportRequest(plan, checked_programs(plan, model), model, cluster, Path(path))
    texts = EXPORTERS[to](request)
    _write_all(texts)
    return Exported(to, tuple(texts))


def _write_all(texts: dict[Path, str]) -> None:
    """Write every file; if one fails, those that were not there before are removed."""
    written: list[Path] = []
    try:
        for path, text in texts.items():
            is_new = not path.exists()
            write_text(path, text)
            if is_new:
                written.append(path)
    except InputError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
