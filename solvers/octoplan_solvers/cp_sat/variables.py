"""Variables of the partition and placement model, and the integer time unit that they are counted in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import PipelineProblem

#: Integer units that the work of the busiest conceivable rank is counted in.
_RESOLUTION = 10_000_000


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """Seconds of one integer unit. Times are rounded down, so that an integer bound is a valid bound."""

    seconds: float

    @classmethod
    def of(cls, problem: PipelineProblem) -> TimeUnit:
        """Choose the unit for a problem."""
        work = problem.num_microbatches * float(problem.layer_time_s.max(axis=0).sum())
        return cls(max(work / problem.num_ranks, 1e-12) / _RESOLUTION)

    def floor(self, seconds: FloatArray) -> IntArray:
        """Round down to whole units."""
        # Lowered by a rounding error first, so that a quotient just above an integer is not an overestimate.
        return np.floor(np.asarray(seconds) / self.seconds * (1 - 1e-12)).astype(np.int64)


@dataclass(frozen=True)
class Variables:
    """Decisions and what follows from them. ``L`` layers, ``R`` ranks."""

    #: ``[l][r]``: layer l runs on rank r.
    on: list[list[cp_model.IntVar]]
    #: ``[l][r]``: a stage on rank r begins at layer l.
    begins: list[list[cp_model.IntVar]]
    #: ``[l][r]``: rank r has appeared at layer l or before.
    seen: list[list[cp_model.IntVar]]
    makespan: cp_model.IntVar


def add_variables(model: cp_model.CpModel, problem: PipelineProblem) -> Variables:
    """Create the variables."""
    layers, ranks = range(problem.num_layers), range(problem.num_ranks)
    return Variables(
        on=[[model.new_bool_var(f"on[{layer},{rank}]") for rank in ranks] for layer in layers],
        begins=[[model.new_bool_var(f"begins[{layer},{rank}]") for rank in ranks] for layer in layers],
        seen=[[model.new_bool_var(f"seen[{layer},{rank}]") for rank in ranks] for layer in layers],
        makespan=model.new_int_var(0, 100 * _RESOLUTION * problem.num_ranks, "makespan"),
    )
