"""`simulate`: when everything happens, how much memory it takes, and what is critical."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from octoplan.simulator.kernels import latest_end_kernel, longest_path_kernel
from octoplan.simulator.memory_kernels import memory_kernel, merge_arrivals
from octoplan.simulator.schedule import Schedule, received_bytes
from octoplan_schemas import InputError
from octoplan_solvers.ops import NUM_KINDS, FloatArray, IntArray


@dataclass(frozen=True)
class MemoryUse:
    """Memory of every rank over time, in bytes."""

    peak_bytes: FloatArray
    #: Seconds at which the peak is first reached.
    peak_at_s: FloatArray


@dataclass(frozen=True)
class Simulation:
    """Result of one simulation. ``N`` compute ops and ``Q`` messages, in the order of the schedule's arrays."""

    schedule: Schedule
    start_s: FloatArray
    end_s: FloatArray
    message_start_s: FloatArray
    message_arrival_s: FloatArray
    #: Ops (index) and messages (N + index) in a topological order.
    sequence: IntArray
    #: For every op, then every message: the entry of ``sequence`` right after which it started, -1 at time 0.
    binding: IntArray

    @cached_property
    def makespan_s(self) -> float:
        """From the start of the first op to the end of the last."""
        return float(self.end_s.max() - self.start_s.min())

    @cached_property
    def busy_s(self) -> FloatArray:
        """``(R,)`` seconds in which each rank computes."""
        staged, order = self.schedule.staged, self.schedule.order
        durations = staged.duration_s[order.ops // NUM_KINDS // order.num_microbatches, order.ops % NUM_KINDS]
        return np.add.reduceat(np.append(durations, 0.0), order.rank_begin[:-1])

    @cached_property
    def bubble_fraction(self) -> float:
        """One minus busy time over ranks x makespan."""
        if self.makespan_s == 0.0:
            return 0.0
        return float(1.0 - self.busy_s.sum() / (len(self.busy_s) * self.makespan_s))

    @cached_property
    def memory(self) -> MemoryUse:
        """Peak of every rank and when it is reached."""
        peak, peak_at, *_ = self._follow_memory(curve=False)
        return MemoryUse(peak, peak_at)

    def memory_curves(self) -> list[tuple[FloatArray, FloatArray]]:
        """Return, per rank, times and bytes of a right-open step curve."""
        times, values, begin = self.memory_steps()
        return [(times[first:end], values[first:end]) for first, end in pairwise(begin.tolist())]

    def memory_steps(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return times and bytes of all ranks' curves, rank after rank, and ``(R + 1,)`` where each begins."""
        *_, times, values, begin = self._follow_memory(curve=True)
        return times, values, begin

    def _follow_memory(
        self, *, curve: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, IntArray]:
        schedule = self.schedule
        staged, order = schedule.staged, schedule.order
        arrivals, sizes, arrival_begin = merge_arrivals(
            schedule.messages,
            schedule.pair_begin,
            staged.pairs[:, 1],
            self.message_arrival_s,
            staged.num_microbatches,
            staged.edge_bytes,
            staged.num_ranks,
        )
        received_forward, received_backward = received_bytes(staged)
        result: tuple[FloatArray, FloatArray, FloatArray, FloatArray, IntArray] = memory_kernel(
            order.ops,
            order.rank_begin,
            order.num_microbatches,
            self.start_s,
            self.end_s,
            arrivals,
            sizes,
            arrival_begin,
            received_forward,
            received_backward,
            staged.activation_bytes,
            staged.freed_at_input_bytes,
            staged.stash_bytes,
            staged.workspace_bytes,
            staged.state_bytes,
            curve,
        )
        return result

    @cached_property
    def slack_s(self) -> FloatArray:
        """``(N,)`` seconds by which each op may be late without making the plan longer."""
        latest, _ = self._latest()
        return latest - self.end_s

    def _latest(self) -> tuple[FloatArray, FloatArray]:
        result: tuple[FloatArray, FloatArray] = latest_end_kernel(
            *self.schedule.graph_arguments(),
            self.sequence,
            float(self.end_s.max()),
        )
        return result

    def critical_path(self) -> list[int]:
        """Return the chain of ops (index) and messages (N + index) that ends last, first one first."""
        node = int(np.argmax(self.end_s))
        path = []
        while node >= 0:
            path.append(node)
            node = int(self.binding[node])
        return path[::-1]


def simulate_schedule(schedule: Schedule) -> Simulation:
    """Simulate a schedule exactly (contract, section 4).

    Raises
    ------
    InputError
        If the schedule waits on itself.
    """
    start, end, message_start, message_arrival, sequence, binding = longest_path_kernel(
        *schedule.graph_arguments()
    )
    if len(sequence) < len(schedule.order.ops) + len(schedule.messages):
        raise InputError("the plan waits on itself; octoplan check names the cycle")
    return Simulation(schedule, start, end, message_start, message_arrival, sequence, binding)
