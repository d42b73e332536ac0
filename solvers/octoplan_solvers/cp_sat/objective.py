"""Objective of the partition and placement model: a valid lower bound of the makespan of every order.

For each rank, with `before` the layers ahead of its first stage (one microbatch's forward through them precedes its
first op, its input backward through them follows its last I or B):

    split:  makespan >= forward(before) + overheads + M * work
            makespan >= forward(before) + overheads + M * (forward + input backward) + backward(before)
    fused:  makespan >= forward(before) + overheads + M * work + backward(before)

Device types enter `before` with their fastest time, for the rank of those layers is another decision.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from octoplan_solvers.bounds import ops_with_overhead
from octoplan_solvers.cp_sat.variables import TimeUnit, Variables
from octoplan_solvers.problem import PipelineProblem


def add_objective(
    model: cp_model.CpModel, problem: PipelineProblem, variables: Variables, unit: TimeUnit
) -> None:
    """Minimise the largest bound over the ranks."""
    for rank in range(problem.num_ranks):
        for bound in _rank_bounds(problem, variables, unit, rank):
            model.add(variables.makespan >= bound)
    model.minimize(variables.makespan)


def _rank_bounds(
    problem: PipelineProblem, variables: Variables, unit: TimeUnit, rank: int
) -> list[cp_model.LinearExprT]:
    kind = problem.rank_type[rank]
    count = problem.num_microbatches
    forward, backward, weight = (
        table[kind] for table in (problem.forward_s, problem.backward_input_s, problem.backward_weight_s)
    )
    backward_before = problem.backward_input_s.min(axis=0)
    if not problem.split_backward:
        backward_before = backward_before + problem.backward_weight_s.min(axis=0)
    head = _sum(unit.floor(problem.forward_s.min(axis=0)), _unseen(variables, rank))
    tail = _sum(unit.floor(backward_before), _unseen(variables, rank))
    on = [row[rank] for row in variables.on]
    per_stage = int(unit.floor(problem.op_overhead_s[rank] * count * ops_with_overhead(problem)))
    overhead = per_stage * sum(row[rank] for row in variables.begins)
    work = _sum(unit.floor((forward + backward + weight) * count), on)
    if not problem.split_backward:
        return [head + overhead + work + tail]
    chain_work = _sum(unit.floor((forward + backward) * count), on)
    return [head + overhead + work, head + overhead + chain_work + tail]


def _unseen(variables: Variables, rank: int) -> list[cp_model.LinearExprT]:
    return [1 - row[rank] for row in variables.seen]


def _sum(weights: object, terms: list[cp_model.LinearExprT]) -> cp_model.LinearExprT:
    pairs = zip(weights, terms, strict=True)  # type: ignore[call-overload]
    return sum(int(weight) * term for weight, term in pairs)
