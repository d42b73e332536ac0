"""Variables of the partition and placement model. Only ``on`` and ``cuts`` are decisions; the rest follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pulp

from octoplan_solvers.placement_costs import PlacementCosts
from octoplan_solvers.problem import PipelineProblem


@dataclass(frozen=True)
class Variables:
    """Decisions and what follows from them. ``L`` layers, ``R`` ranks."""

    #: ``[l][r]``: layer l runs on rank r.
    on: list[list[pulp.LpVariable]]
    #: ``[l][r]``: layer l runs on rank r and the one before does not.
    arrives: list[list[pulp.LpVariable]]
    #: ``[l, r]``: a stage ends before layer l, and both layers are on rank r; only where such a cut may be of use.
    cuts: dict[tuple[int, int], pulp.LpVariable]
    #: ``[l][r]``: rank r has appeared at layer l or before.
    seen: list[list[pulp.LpVariable]]
    #: ``[l]``: the rank changes between layers l - 1 and l. Only where that takes time.
    crosses: dict[int, pulp.LpVariable]
    #: ``[l, r]``: such a change on the way to rank r's first layer.
    ahead: dict[tuple[int, int], pulp.LpVariable]
    #: ``[t, l, r]``: layer l lies ahead of rank r's first layer, on device type t. Only where t is slower than another.
    slow: dict[tuple[int, int, int], pulp.LpVariable]
    #: ``[k]``: the ends of skip k are on different ranks. Only where that takes time.
    differs: dict[int, pulp.LpVariable]
    #: In units of `PlacementCosts.scale_s`.
    makespan: pulp.LpVariable

    def num_stages(self, rank: int) -> pulp.LpAffineExpression:
        """Return the number of stages on a rank."""
        arrivals = [row[rank] for row in self.arrives]
        return pulp.lpSum(arrivals + [cut for (_, other), cut in self.cuts.items() if other == rank])

    def boundary(self, layer: int) -> pulp.LpAffineExpression:
        """Return whether a stage begins at a layer."""
        return pulp.lpSum(
            self.arrives[layer] + [cut for (other, _), cut in self.cuts.items() if other == layer]
        )


def add_variables(
    model: pulp.LpProblem, problem: PipelineProblem, costs: PlacementCosts, cut_layers: Iterable[int]
) -> Variables:
    """Create the variables; ``cut_layers`` are those at which a stage may end without a change of rank."""
    layers, ranks = range(problem.num_layers), range(problem.num_ranks)
    crossing = np.flatnonzero(costs.crossing_s).tolist()

    def binary(name: str, *index: int) -> pulp.LpVariable:
        return model.add_variable("_".join((name, *map(str, index))), cat="Binary")

    def share(name: str, *index: int) -> pulp.LpVariable:
        return model.add_variable("_".join((name, *map(str, index))), lowBound=0, upBound=1)

    return Variables(
        on=[[binary("on", layer, rank) for rank in ranks] for layer in layers],
        arrives=[[share("arrives", layer, rank) for rank in ranks] for layer in layers],
        cuts={(layer, rank): binary("cut", layer, rank) for layer in cut_layers for rank in ranks},
        seen=[[share("seen", layer, rank) for rank in ranks] for layer in layers],
        crosses={layer: share("crosses", layer) for layer in crossing},
        ahead={(layer, rank): share("ahead", layer, rank) for layer in crossing for rank in ranks},
        slow={
            (kind, layer, rank): share("slow", kind, layer, rank)
            for kind, forward, backward in costs.extra_types
            for layer in np.flatnonzero(forward + backward).tolist()
            for rank in ranks
        },
        differs={
            index: share("differs", index) for index, skip in enumerate(costs.skips) if skip.transfer_s > 0
        },
        makespan=model.add_variable("makespan", lowBound=0),
    )
