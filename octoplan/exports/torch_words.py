"""What torch's engine asks of a plan, whether it reads the communication from the file or adds it itself."""

from __future__ import annotations

from octoplan.errors import InfeasibleError
from octoplan.exports.request import ExportRequest


def require_torch(request: ExportRequest) -> None:
    """Refuse what torch's engine would run wrongly, or not at all.

    Raises
    ------
    InfeasibleError
        If stages that are not neighbours exchange tensors, or the last stage's forwards are out of order: torch files
        losses in the order in which they come, and takes them by microbatch number.
    """
    for source, destination in request.skips():
        raise InfeasibleError(
            f"torch's engine hands tensors to the next stage only, but stage {source} feeds stage {destination}; "
            "compile with --target torch, or run the plan with octoplan run"
        )
    forwards = request.last_forwards()
    if forwards != sorted(forwards):
        position = next(index for index, microbatch in enumerate(forwards) if microbatch != index)
        raise InfeasibleError(
            "torch's engine needs the last stage's forwards by number, or gradients come out wrong, but "
            f"{len(request.plan.stages) - 1}F{forwards[position]} comes where microbatch {position} should; compile "
            "with --target torch, or run the plan with octoplan run"
        )
