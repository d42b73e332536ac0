"""What both backends limit: memory of one microbatch per rank, and where stages may end without a change of rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from octoplan_solvers.ops import FloatArray
from octoplan_solvers.placement_check import surely_held_bytes
from octoplan_solvers.problem import PipelineProblem

#: Share of a limit within which two sums of bytes count as equal.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The layers of a rank may take so many bytes in all; ``layer_bytes`` is ``(L,)``."""

    name: str
    rank: int
    limit_bytes: float
    layer_bytes: FloatArray
    #: False: it limits activations alone.
    is_whole: bool


def memory_limits(problem: PipelineProblem) -> Iterator[MemoryLimit]:
    """Yield the limits that can be binding.

    A rank holds the state of its layers, and at some time all activations of one microbatch (`surely_held_bytes`).
    An order may hold more, so this is necessary, not sufficient.
    """
    activation, state = surely_held_bytes(problem), problem.state_bytes
    for rank in range(problem.num_ranks):
        whole = float(problem.memory_limit_bytes[rank])
        if np.isfinite(whole) and float((state + activation).sum()) > whole:
            name = f"memory limit of rank {rank} ({whole:,.0f} bytes)"
            yield MemoryLimit(name, rank, max(whole, 1e-9), state + activation, True)
        dynamic = problem.dynamic_limit_bytes
        if np.isfinite(dynamic) and float(activation.sum()) > dynamic:
            name = f"activation limit of rank {rank} ({dynamic:,.0f} bytes)"
            yield MemoryLimit(name, rank, max(dynamic, 1e-9), activation, False)


def certain_excess(problem: PipelineProblem) -> tuple[float, tuple[str, ...]]:
    """Return by how much memory falls short whatever the assignment, by arithmetic alone.

    All layers together must fit into all ranks, and every layer into some rank.

    Returns
    -------
    factor:
        All limits must be at least so many times as large; 1 if nothing is certain.
    names:
        The limits that cannot hold together; none if the factor is 1.
    """
    limits = list(memory_limits(problem))
    excess: tuple[float, tuple[str, ...]] = 1.0, ()
    for own in ([one for one in limits if one.is_whole], [one for one in limits if not one.is_whole]):
        if len(own) < problem.num_ranks:
            continue
        bytes_, room = own[0].layer_bytes, [one.limit_bytes for one in own]
        factor = max(float(bytes_.sum()) / sum(room), float(bytes_.max()) / max(room))
        if factor > max(excess[0], 1 + _TOLERANCE):
            excess = factor, tuple(one.name for one in own)
    return excess


def cut_layers(problem: PipelineProblem, *, everywhere: bool = False) -> range | list[int]:
    """Return the layers before which a stage may end though the rank stays the same.

    Joining two such stages never raises the model's objective, so cuts matter only where constraints ask for stages,
    or (``everywhere``) where assignments that differ in them are to be told apart.
    """
    rule = problem.constraints.stages_per_rank
    if everywhere or rule.min > 1 or rule.equal:
        return range(1, problem.num_layers) if problem.max_stages_per_rank > 1 else []
    return sorted({layer + 1 for layer in problem.constraints.boundary_after} - {problem.num_layers})
