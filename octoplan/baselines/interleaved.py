"""Several stages per rank, dealt out in turn, fused backward: interleaved 1F1B and looped BFS.

With ``v`` stages per rank the makespan for equal stages is ``(M + (P - 1) / v) (F + B)``, F and B being the
work of a whole rank and M a multiple of P.

Sources: Narayanan et al., Megatron-LM (2021), section 2.2; Lamy-Poirier, Breadth-First Pipeline Parallelism
(2023).
"""

from __future__ import annotations

from octoplan.baselines.classic import alternate
from octoplan.baselines.schedule import Op, RankOrder


def interleaved_1f1b(num_ranks: int, num_microbatches: int, stages_per_rank: int) -> tuple[RankOrder, ...]:
    """Megatron's order: groups of microbatches go through the rank's stages depth first."""
    group = microbatch_group_size(num_ranks, num_microbatches)
    orders = []
    for rank in range(num_ranks):
        stages = range(rank, num_ranks * stages_per_rank, num_ranks)
        forwards = _in_groups("F", list(stages), num_microbatches, group)
        backwards = _in_groups("B", list(reversed(stages)), num_microbatches, group)
        num_warmup = (stages_per_rank - 1) * group + 2 * (num_ranks - 1 - rank)
        orders.append(alternate(forwards, backwards, num_warmup))
    return tuple(orders)


def microbatch_group_size(num_ranks: int, num_microbatches: int) -> int:
    """How many microbatches pass a stage before the rank turns to its next stage.

    Megatron (``microbatch_group_size_per_vp_stage``) asks for at least one per rank and at most all, and
    for a last group that is whole or holds at least one per rank. This is the smallest such size, which
    holds the fewest activations; where the microbatches are a multiple of the ranks it is the number of
    ranks. Fewer microbatches than ranks, which Megatron refuses, form one group.
    """
    for size in range(num_ranks, num_microbatches):
        remainder = num_microbatches % size
        if remainder == 0 or remainder >= num_ranks:
            return size
    return num_microbatches


def _in_groups(kind: str, stages: list[int], num_microbatches: int, group: int) -> list[Op]:
    return [
        (stage, kind, m)
        for first in range(0, num_microbatches, group)
        for stage in stages
        for m in range(first, min(first + group, num_microbatches))
    ]


def looped_bfs(num_ranks: int, num_microbatches: int, stages_per_rank: int) -> tuple[RankOrder, ...]:
    """All microbatches through a rank's first stage, then its second, ...; backward the very opposite way."""
    orders = []
    for rank in range(num_ranks):
        stages = range(rank, num_ranks * stages_per_rank, num_ranks)
        forwards = [(stage, "F", m) for stage in stages for m in range(num_microbatches)]
        orders.append((*forwards, *((stage, "B", m) for stage, _, m in reversed(forwards))))
    return tuple(orders)
