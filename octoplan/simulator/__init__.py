"""The simulator: what a plan means in time and memory (contract, section 4)."""

from octoplan.simulator.schedule import Replay, Schedule, replay
from octoplan.simulator.simulation import MemoryUse, Simulation, simulate_schedule

__all__ = ["MemoryUse", "Replay", "Schedule", "Simulation", "replay", "simulate_schedule"]
