"""Runs OctoPlan plans with torch.distributed.

`PipelineExecutor` is one rank's part in a training loop of your own; `run_plan` is the whole run that
``octoplan run`` starts.
"""

from octoplan_runtime.errors import PipelineError
from octoplan_runtime.executor import PipelineExecutor
from octoplan_runtime.interpreter import LossFunction
from octoplan_runtime.miniature import MiniatureSize, miniature
from octoplan_runtime.options import RunOptions
from octoplan_runtime.reference import SingleProcess
from octoplan_runtime.report import RankReport, RunReport
from octoplan_runtime.run import RunError, run_plan
from octoplan_runtime.stage_graph import model_skips
from octoplan_runtime.stage_module import StageModule
from octoplan_runtime.workload import Workload

__all__ = [
    "LossFunction",
    "MiniatureSize",
    "PipelineExecutor",
    "PipelineError",
    "RankReport",
    "RunError",
    "RunOptions",
    "RunReport",
    "SingleProcess",
    "StageModule",
    "Workload",
    "miniature",
    "model_skips",
    "run_plan",
]
