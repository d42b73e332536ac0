"""Runs OctoPlan plans with torch.distributed.

`PipelineExecutor` is one rank's part in a training loop of your own; `run_plan` is the whole run that
``octoplan run`` starts.

Names are loaded when first used: the command line starts loading torch in the process that the ranks come from
while it loads torch itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octoplan_runtime.auxiliary import add_loss, collected_losses
    from octoplan_runtime.data_parallel import average_gradients
    from octoplan_runtime.errors import PipelineError
    from octoplan_runtime.executor import PipelineExecutor
    from octoplan_runtime.forward import ForwardMode
    from octoplan_runtime.interpreter import LossFunction
    from octoplan_runtime.miniature import MiniatureSize, build_miniature
    from octoplan_runtime.options import RunOptions
    from octoplan_runtime.progress import Progress
    from octoplan_runtime.reference import SingleProcess
    from octoplan_runtime.report import RankReport, RunReport
    from octoplan_runtime.run import RunError, run_plan
    from octoplan_runtime.session import joined_group
    from octoplan_runtime.stage_graph import model_skips
    from octoplan_runtime.stage_module import StageModule
    from octoplan_runtime.workload import Workload

__all__ = [
    "ForwardMode",
    "LossFunction",
    "MiniatureSize",
    "PipelineError",
    "PipelineExecutor",
    "Progress",
    "RankReport",
    "RunError",
    "RunOptions",
    "RunReport",
    "SingleProcess",
    "StageModule",
    "Workload",
    "add_loss",
    "average_gradients",
    "build_miniature",
    "collected_losses",
    "joined_group",
    "model_skips",
    "run_plan",
]

_HOMES = {
    "ForwardMode": "forward",
    "LossFunction": "interpreter",
    "MiniatureSize": "miniature",
    "PipelineError": "errors",
    "PipelineExecutor": "executor",
    "Progress": "progress",
    "RankReport": "report",
    "RunError": "run",
    "RunOptions": "options",
    "RunReport": "report",
    "SingleProcess": "reference",
    "StageModule": "stage_module",
    "Workload": "workload",
    "add_loss": "auxiliary",
    "average_gradients": "data_parallel",
    "collected_losses": "auxiliary",
    "joined_group": "session",
    "build_miniature": "miniature",
    "model_skips": "stage_graph",
    "run_plan": "run",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
