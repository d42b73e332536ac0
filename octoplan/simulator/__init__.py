"""The simulator: what a plan means in time and memory (contract, section 4)."""

from octoplan.simulator.attribution import BubbleReport, BubbleRow, Cause, Idle, attribute_bubbles
from octoplan.simulator.schedule import Replay, Schedule, replay
from octoplan.simulator.simulation import MemoryUse, Simulation, simulate_schedule

__all__ = [
    "BubbleReport",
    "BubbleRow",
    "Cause",
    "Idle",
    "MemoryUse",
    "Replay",
    "Schedule",
    "Simulation",
    "attribute_bubbles",
    "replay",
    "simulate_schedule",
]
