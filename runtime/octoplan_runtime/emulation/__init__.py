"""Emulated devices: ops sleep for the plan's times, links delay every message; all else is real."""

from octoplan_runtime.emulation.calibration import calibrate
from octoplan_runtime.emulation.costs import EmulatedCosts, MachineCosts
from octoplan_runtime.emulation.device import EmulatedExecutor
from octoplan_runtime.emulation.prediction import predicted_ops
from octoplan_runtime.emulation.workload import emulated_workload

__all__ = [
    "EmulatedCosts",
    "EmulatedExecutor",
    "MachineCosts",
    "calibrate",
    "emulated_workload",
    "predicted_ops",
]
