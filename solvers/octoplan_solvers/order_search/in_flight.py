"""How many microbatches a rank may have in flight, from their first F there to their last op there."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.order_search.variables import Variables


def add_in_flight(model: cp_model.CpModel, variables: Variables, *, any_names: bool) -> None:
    """Limit the microbatches between their first F on a rank and their last op there.

    Where microbatches are named by their turn at each stage (not ``any_names``), those that have begun at the first
    stage less those that have ended at another are in flight at least, whatever their names: that is limited for each
    stage by itself, and the solutions are a superset. Only for the whole problem: in a window nothing is limited.
    """
    window = variables.window
    staged = window.staged
    if staged.max_in_flight is None or not window.is_whole:
        return
    for rank in np.flatnonzero(staged.max_in_flight < staged.num_microbatches).tolist():
        stages = np.flatnonzero(staged.stage_rank == rank).tolist()
        for group in [stages] if any_names else [[stage] for stage in stages]:
            intervals = [
                _in_flight(model, variables, stages[0], group, microbatch)
                for microbatch in range(staged.num_microbatches)
            ]
            model.add_cumulative(intervals, [1] * len(intervals), int(staged.max_in_flight[rank]))


def _in_flight(
    model: cp_model.CpModel, variables: Variables, first: int, stages: list[int], microbatch: int
) -> cp_model.IntervalVar:
    """From F of the rank's first stage to the end of the last op of these stages."""
    last_kind = 2 if variables.window.staged.split_backward else 1
    begin = variables.start[first, 0, microbatch]
    length = model.new_int_var(0, variables.horizon, "")
    end = model.new_int_var(0, variables.horizon, "")
    for stage in stages:
        model.add(end >= variables.end[stage, last_kind, microbatch])
    return model.new_interval_var(begin, length, end, "")
