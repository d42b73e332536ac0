"""Variables of the partition and placement model, and the integer time unit that they are counted in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.placement_costs import LARGEST_COEFFICIENT, PlacementCosts
from octoplan_solvers.problem import PipelineProblem

#: Integer units in one `PlacementCosts.scale_s`.
_RESOLUTION = 10_000_000
#: Units that no makespan reaches.
LARGEST_TIME = 2**56


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """Seconds of one integer unit. Times are rounded down, so that an integer bound is a valid bound."""

    seconds: float

    @classmethod
    def of(cls, costs: PlacementCosts) -> TimeUnit:
        """Choose the unit for a problem."""
        return cls(costs.scale_s / _RESOLUTION)

    def floor(self, seconds: FloatArray | float) -> IntArray:
        """Round down to whole units."""
        # Lowered by a rounding error first, so that a quotient just above an integer is not an overestimate.
        units = np.floor(np.asarray(seconds) / self.seconds * (1 - 1e-12))
        return np.minimum(units, LARGEST_COEFFICIENT * _RESOLUTION).astype(np.int64)


@dataclass(frozen=True)
class Variables:
    """Decisions and what follows from them. ``L`` layers, ``R`` ranks."""

    #: ``[l][r]``: layer l runs on rank r.
    on: list[list[cp_model.IntVar]]
    #: ``[l][r]``: layer l runs on rank r and the one before does not.
    arrives: list[list[cp_model.IntVar]]
    #: ``[l, r]``: a stage ends before layer l, and both layers are on rank r; only where such a cut may be of use.
    cuts: dict[tuple[int, int], cp_model.IntVar]
    #: ``[l][r]``: rank r has appeared at layer l or before.
    seen: list[list[cp_model.IntVar]]
    #: ``[l]``: the rank changes between layers l - 1 and l. Only where that takes time.
    crosses: dict[int, cp_model.IntVar]
    #: ``[l, r]``: such a change on the way to rank r's first layer.
    ahead: dict[tuple[int, int], cp_model.IntVar]
    #: ``[t, l, r]``: layer l lies ahead of rank r's first layer, on device type t. Only where t is slower than another.
    slow: dict[tuple[int, int, int], cp_model.IntVar]
    #: ``[k]``: the ends of skip k are on different ranks. Only where that takes time.
    differs: dict[int, cp_model.IntVar]
    makespan: cp_model.IntVar

    def num_stages(self, rank: int) -> cp_model.LinearExprT:
        """Return the number of stages on a rank."""
        return sum([row[rank] for row in self.arrives]) + sum(
            cut for (_, other), cut in self.cuts.items() if other == rank
        )

    def boundary(self, layer: int) -> cp_model.LinearExprT:
        """Return whether a stage begins at a layer."""
        return sum(self.arrives[layer]) + sum(cut for (other, _), cut in self.cuts.items() if other == layer)


@dataclass(frozen=True)
class PlacementModel:
    """The constraint model of a problem."""

    model: cp_model.CpModel
    variables: Variables
    unit: TimeUnit


def add_variables(
    model: cp_model.CpModel, problem: PipelineProblem, costs: PlacementCosts, cut_layers: Iterable[int]
) -> Variables:
    """Create the variables; ``cut_layers`` are those at which a stage may end without a change of rank."""
    layers, ranks = range(problem.num_layers), range(problem.num_ranks)
    crossing = np.flatnonzero(costs.crossing_s).tolist()

    def boolean(name: str, *index: int) -> cp_model.IntVar:
        return model.new_bool_var(f"{name}[{','.join(map(str, index))}]")

    return Variables(
        on=[[boolean("on", layer, rank) for rank in ranks] for layer in layers],
        arrives=[[boolean("arrives", layer, rank) for rank in ranks] for layer in layers],
        cuts={(layer, rank): boolean("cut", layer, rank) for layer in cut_layers for rank in ranks},
        seen=[[boolean("seen", layer, rank) for rank in ranks] for layer in layers],
        crosses={layer: boolean("crosses", layer) for layer in crossing},
        ahead={(layer, rank): boolean("ahead", layer, rank) for layer in crossing for rank in ranks},
        slow={
            (kind, layer, rank): boolean("slow", kind, layer, rank)
            for kind, forward, backward in costs.extra_types
            for layer in np.flatnonzero(forward + backward).tolist()
            for rank in ranks
        },
        differs={
            index: boolean("differs", index) for index, skip in enumerate(costs.skips) if skip.transfer_s > 0
        },
        makespan=model.new_int_var(0, LARGEST_TIME, "makespan"),
    )
