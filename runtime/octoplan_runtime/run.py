"""`run_plan`: the whole run, here on local processes or as one rank under ``torchrun``."""

from __future__ import annotations

import os
import sys

from octoplan_runtime.board import Board
from octoplan_runtime.fork_server import under_torchrun
from octoplan_runtime.launch import launch_local
from octoplan_runtime.options import RunOptions
from octoplan_runtime.preparation import prepare
from octoplan_runtime.report import RunReport
from octoplan_runtime.session import run_rank


class RunError(RuntimeError):
    """The run ended early; its ranks have said why on standard error."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"the run failed with exit code {exit_code}")


def run_plan(options: RunOptions) -> RunReport | None:
    """Run a plan and return its report; under ``torchrun`` only rank 0 returns one, and a calibration has none.

    Raises
    ------
    InputError
        If the plan, the model or an option is refused.
    RunError
        If a rank failed.
    """
    if under_torchrun():
        return run_rank(options)
    plan = prepare(options).plan
    result = launch_local(_run_and_report, plan.num_ranks, (options,))
    if result.exit_code != 0 or (result.report is None and options.calibrate is None):
        raise RunError(result.exit_code or 1)
    if result.report is None:
        return None
    return RunReport.from_json(result.report)


def _run_and_report(options: RunOptions) -> None:
    report = run_rank(options)
    if report is not None:
        Board.connect(options.timeout_s).report(report.to_json())
    # Nothing is left to do that could fail or hang, such as the ends of torch's threads.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
