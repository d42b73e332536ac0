"""What every baseline hands back: where the stages run, and the order of compute ops on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: (stage, kind, microbatch) with kind one of F, I, W, B.
Op = tuple[int, str, int]
#: The compute ops of one rank, in program order.
RankOrder = tuple[Op, ...]
PlacementKind = Literal["loop", "v"]


@dataclass(frozen=True, slots=True)
class BaselineSchedule:
    """A placement and a complete order of compute ops; no SEND or RECV yet.

    Attributes
    ----------
    placement:
        Rank of every stage.
    orders:
        One order per rank.
    backward:
        ``"fused"`` if every backward is one B, ``"split"`` if some are an I and a W.
    """

    placement: tuple[int, ...]
    orders: tuple[RankOrder, ...]
    backward: Literal["split", "fused"]


@dataclass(frozen=True, slots=True)
class StageCosts:
    """What one microbatch costs; only the methods that place W by time look at it.

    Attributes
    ----------
    forward_s, backward_input_s, backward_weight_s:
        Seconds of F, I and W of every stage, op overhead included.
    transfer_s:
        Seconds from the end of stage ``s`` until stage ``s + 1`` has its output (and back for gradients):
        one entry less than stages, zero where both are on one rank.
    """

    forward_s: tuple[float, ...]
    backward_input_s: tuple[float, ...]
    backward_weight_s: tuple[float, ...]
    transfer_s: tuple[float, ...]

    @classmethod
    def equal(cls, num_stages: int) -> StageCosts:
        """F = I = W = 1 on every stage and free transfers: what the published figures assume."""
        ones = (1.0,) * num_stages
        return cls(ones, ones, ones, (0.0,) * (num_stages - 1))


def loop_placement(num_ranks: int, stages_per_rank: int) -> tuple[int, ...]:
    """Deal the stages out in turn: stage ``s`` on rank ``s mod num_ranks``."""
    return tuple(range(num_ranks)) * stages_per_rank


def v_placement(num_ranks: int) -> tuple[int, ...]:
    """Go down the ranks and back up: two stages per rank, first and last stage both on rank 0."""
    return (*range(num_ranks), *reversed(range(num_ranks)))
