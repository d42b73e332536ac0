"""GPipe and 1F1B: one stage per rank, fused backward.

Makespan for equal stages: ``(M + P - 1) (F + B)`` with P ranks and M microbatches, for both. GPipe holds M
microbatches on every rank, 1F1B at most P - r on rank r.

Sources: Huang et al., GPipe (2019); Narayanan et al., PipeDream (2019) and Megatron-LM (2021).
"""

from __future__ import annotations

from octoplan.baselines.schedule import Op, RankOrder


def gpipe(num_ranks: int, num_microbatches: int) -> tuple[RankOrder, ...]:
    """All forwards, then all backwards, both in order of microbatch."""
    return tuple(
        tuple((rank, kind, m) for kind in "FB" for m in range(num_microbatches)) for rank in range(num_ranks)
    )


def one_f_one_b(num_ranks: int, num_microbatches: int) -> tuple[RankOrder, ...]:
    """Warm up with one forward per later rank, then one forward and one backward in turn."""
    orders = []
    for rank in range(num_ranks):
        forwards: list[Op] = [(rank, "F", m) for m in range(num_microbatches)]
        backwards: list[Op] = [(rank, "B", m) for m in range(num_microbatches)]
        orders.append(alternate(forwards, backwards, num_warmup=num_ranks - 1 - rank))
    return tuple(orders)


def alternate(forwards: list[Op], backwards: list[Op], num_warmup: int) -> RankOrder:
    """Return ``num_warmup`` forwards, then forward and backward in turn, then the backwards that are left."""
    num_warmup = min(num_warmup, len(forwards))
    steady = [op for pair in zip(forwards[num_warmup:], backwards, strict=False) for op in pair]
    num_steady_backwards = len(forwards) - num_warmup
    return (*forwards[:num_warmup], *steady, *backwards[num_steady_backwards:])
