"""What engines ask of partitions, as the constraints that every solver and the search keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from octoplan.errors import InfeasibleError
from octoplan_solvers.problem import PipelineProblem

#: Parts of one block: ``layers.3.attention`` and ``layers.3.mlp``.
_BLOCK = re.compile(r"(layers\.\d+)(\..*)?")
#: ``[first, end)`` layers that stay in one stage.
_Run = tuple[int, int]


def block_of(layer_name: str) -> str:
    """Return the name of the block that a layer is, or is a part of."""
    match = _BLOCK.fullmatch(layer_name)
    return layer_name if match is None else match.group(1)


def equal_stages(problem: PipelineProblem) -> PipelineProblem:
    """Ask for the same number of stages on every rank."""
    rule = replace(problem.constraints.stages_per_rank, equal=True)
    return replace(problem, constraints=replace(problem.constraints, stages_per_rank=rule))


def whole_blocks(problem: PipelineProblem) -> PipelineProblem:
    """Keep the parts of every block in one stage."""
    runs: list[_Run] = []
    first = 0
    for _, parts in groupby(problem.layer_names, key=block_of):
        end = first + len(list(parts))
        runs.append((first, end))
        first = end
    return in_one_stage(problem, runs)


def skips_in_one_stage(problem: PipelineProblem, engine: str) -> PipelineProblem:
    """Keep both ends of every skip in one stage, for an engine in which only neighbouring stages talk.

    Raises
    ------
    InfeasibleError
        If that leaves fewer stages than ranks.
    """
    ends = zip(problem.skip_source.tolist(), problem.skip_destination.tolist(), strict=True)
    runs = [(source, destination + 1) for source, destination in ends]
    kept = in_one_stage(problem, runs)
    inside = {layer for first, end in kept.constraints.same_stage for layer in range(first + 1, end)}
    most = problem.num_layers - len(inside)
    if most < problem.num_ranks and runs:
        longest = max(runs, key=lambda run: run[1] - run[0])
        source, destination = (problem.layer_names[layer] for layer in (longest[0], longest[1] - 1))
        raise InfeasibleError(
            f"{engine} hands tensors to the next stage only, so the skip from {source!r} to {destination!r} keeps "
            f"{longest[1] - longest[0]} of {problem.num_layers} layers in one stage, and {most} stages cannot fill "
            f"{problem.num_ranks} ranks; use fewer ranks, or --target octoplan, whose runtime carries skips"
        )
    return kept


def in_one_stage(problem: PipelineProblem, runs: Sequence[_Run]) -> PipelineProblem:
    """Forbid stage boundaries inside runs of layers."""
    longer = tuple(run for run in runs if run[1] - run[0] > 1)
    constraints = replace(problem.constraints, same_stage=(*problem.constraints.same_stage, *longer))
    return replace(problem, constraints=constraints)
