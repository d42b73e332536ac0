"""How far each rank's clock is from rank 0's.

On one machine the monotonic clock is common to all processes and the answer is zero but for the length of a message;
across machines it is anything at all. As in NTP, the round trip that took the shortest says most.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

_ROUNDS = 16


def clock_offset_s(group: dist.ProcessGroup | None = None) -> float:
    """Return this rank's monotonic clock minus rank 0's, in seconds; every rank takes part.

    The error is at most half of the shortest round trip.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    offset = 0.0
    for other in range(1, size):
        if rank == 0:
            for _ in range(_ROUNDS):
                _answer(other, group)
        elif rank == other:
            offset = min(_ask(group) for _ in range(_ROUNDS))[1]
    return offset


def _ask(group: dist.ProcessGroup | None) -> tuple[float, float]:
    """Return the length of a round trip, and the offset that it shows."""
    theirs = torch.empty(1, dtype=torch.float64)
    sent_s = time.monotonic()
    dist.send(torch.zeros(1), group=group, group_dst=0)
    dist.recv(theirs, group=group, group_src=0)
    round_trip_s = time.monotonic() - sent_s
    return round_trip_s, sent_s + round_trip_s / 2 - float(theirs)


def _answer(rank: int, group: dist.ProcessGroup | None) -> None:
    dist.recv(torch.empty(1), group=group, group_src=rank)
    dist.send(torch.tensor([time.monotonic()], dtype=torch.float64), group=group, group_dst=rank)
