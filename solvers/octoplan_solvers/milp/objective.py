"""Objective of the partition and placement model: a lower bound of the makespan of every order.

`octoplan_solvers.placement_check` gives the expression and why it is valid. Here time is in units of
`PlacementCosts.scale_s`; the layers ahead of a rank are those at which it is not `seen` yet.
"""

from __future__ import annotations

import numpy as np
import pulp

from octoplan_solvers.milp.variables import Variables
from octoplan_solvers.ops import FloatArray
from octoplan_solvers.placement_costs import LARGEST_COEFFICIENT, PlacementCosts, RankBound
from octoplan_solvers.problem import PipelineProblem


def add_objective(
    model: pulp.LpProblem,
    problem: PipelineProblem,
    variables: Variables,
    costs: PlacementCosts,
    *,
    in_seconds: bool = False,
) -> None:
    """Minimise the largest bound over the ranks and over one microbatch's paths.

    Solvers' tolerances are absolute, so the objective is in scaled time where we solve, in seconds where others may.
    """
    terms = _Terms(problem, variables, costs)
    model.setObjective((costs.scale_s if in_seconds else 1.0) * variables.makespan)
    for rank in range(problem.num_ranks):
        head, tail = terms.head(rank), terms.tail(rank)
        for bound in costs.rank_bounds:
            own = terms.own_work(bound, rank)
            model += variables.makespan >= head + own + (tail if bound.has_tail else 0)
    layers = range(problem.num_layers)
    model += variables.makespan >= terms.path(layers[-1], problem.num_layers)
    for index, differs in variables.differs.items():
        skip = costs.skips[index]
        transfers = 2 * skip.transfer_s / costs.scale_s
        model += variables.makespan >= terms.path(skip.source, skip.destination) + transfers * differs


class _Terms:
    """Linear expressions in scaled time."""

    def __init__(self, problem: PipelineProblem, variables: Variables, costs: PlacementCosts) -> None:
        self._problem = problem
        self._variables = variables
        self._costs = costs
        self._extra = {kind: (forward, backward) for kind, forward, backward in costs.extra_types}

    def head(self, rank: int) -> pulp.LpAffineExpression:
        """One microbatch's forward through everything ahead of a rank."""
        return self._ahead(self._costs.forward_s.min(axis=0), 0, rank)

    def tail(self, rank: int) -> pulp.LpAffineExpression:
        """One microbatch's backward through everything ahead of a rank."""
        backward = self._costs.backward_s.min(axis=0)
        backward[0] += self._costs.last_weight_s.min()
        return self._ahead(backward, 1, rank)

    def _ahead(self, fastest_s: FloatArray, direction: int, rank: int) -> pulp.LpAffineExpression:
        variables, layers = self._variables, range(self._problem.num_layers)
        result = self._sum(fastest_s, [1 - row[rank] for row in variables.seen])
        result += self._sum(
            self._costs.crossing_s, [variables.ahead.get((layer, rank), 0) for layer in layers]
        )
        for kind, extra in self._extra.items():
            slow = [variables.slow.get((kind, layer, rank), 0) for layer in layers]
            result += self._sum(extra[direction], slow)
        return result

    def own_work(self, bound: RankBound, rank: int) -> pulp.LpAffineExpression:
        """All microbatches on a rank, with the overheads of its stages."""
        work = self._sum(bound.work_s[rank], [row[rank] for row in self._variables.on])
        return work + float(bound.stage_s[rank]) / self._costs.scale_s * self._variables.num_stages(rank)

    def path(self, source: int, destination: int) -> pulp.LpAffineExpression:
        """One microbatch through the layers up to ``source`` and from ``destination`` on, there and back."""
        costs, rank_type = self._costs, self._problem.rank_type
        both = (costs.forward_s + costs.backward_s)[rank_type]
        both[:, 0] += costs.last_weight_s[rank_type]
        result = pulp.LpAffineExpression(constant=costs.path_overhead_s / costs.scale_s)
        for layer in (*range(source + 1), *range(destination, self._problem.num_layers)):
            result += self._sum(both[:, layer], self._variables.on[layer])
        inside = [layer for layer in self._variables.crosses if layer <= source or layer > destination]
        crosses = [self._variables.crosses[layer] for layer in inside]
        return result + self._sum(2 * costs.crossing_s[inside], crosses)

    def _sum(self, seconds: FloatArray, terms: list[pulp.LpAffineExpression]) -> pulp.LpAffineExpression:
        weights = np.minimum(seconds / self._costs.scale_s, LARGEST_COEFFICIENT).tolist()
        return pulp.lpSum(weight * term for weight, term in zip(weights, terms, strict=True) if weight)
