"""Transfers between CUDA devices with NCCL. Written after torch's documentation; not yet run on a machine with GPUs.

NCCL runs the transfers of one communicator in the order in which they were posted. Each direction of a rank pair has a
communicator (and so a stream) of its own, or a RECV that still waits would hold up a SEND the other way. A posted
transfer waits for what the compute stream has queued so far, and ``wait`` makes the compute stream wait for the
transfer, not the host; so copies and compute overlap without events of our own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import torch
import torch.distributed as dist

from octoplan_runtime.tensor_specs import TensorSpec
from octoplan_runtime.transport import Done, Receive, Transport
from octoplan_schemas import OpWord, Plan, parse_word


class CudaTransport(Transport):
    """Sends and receives of this rank over one process group per direction of a rank pair.

    Parameters
    ----------
    plan:
        Says which pairs talk.
    group:
        Process group with one process per rank of the plan; None for the default group.
    device:
        This rank's GPU.
    """

    def __init__(self, plan: Plan, group: dist.ProcessGroup | None, device: torch.device) -> None:
        super().__init__(group, device)
        self._rank = dist.get_rank(group)
        self._directions = {
            pair: _pair_group(pair, group) for pair in directed_pairs(plan) if self._rank in pair
        }
        self._under_way: deque[tuple[list[torch.Tensor], list[dist.Work], float, Done]] = deque()

    def send(self, word: OpWord, tensors: Sequence[torch.Tensor], rank: int, done: Done) -> None:
        """Post a message; what earlier ones had sent is let go of as soon as it has left."""
        self._collect()
        kept = [tensor.contiguous() for tensor in tensors]
        group = self._directions[self._rank, rank]
        works = [
            _work(dist.isend(tensor, group=group, group_dst=_other(self._rank, rank))) for tensor in kept
        ]
        self._under_way.append((kept, works, time.monotonic(), done))

    def receive(self, specs: Sequence[TensorSpec], rank: int) -> Receive:
        """Post a receive from a rank."""
        group = self._directions[rank, self._rank]
        tensors = [spec.empty(self.device) for spec in specs]
        works = [
            _work(dist.irecv(tensor, group=group, group_src=_other(self._rank, rank))) for tensor in tensors
        ]
        return Receive(tensors, works)

    def flush(self) -> None:
        """Let the compute stream wait for every send."""
        for _, works, _, _ in self._under_way:
            for work in works:
                work.wait()
        torch.cuda.current_stream(self.device).synchronize()
        self._collect()

    def _collect(self) -> None:
        while self._under_way and all(work.is_completed() for work in self._under_way[0][1]):
            _, _, posted_s, done = self._under_way.popleft()
            done(posted_s, time.monotonic())


def directed_pairs(plan: Plan) -> list[tuple[int, int]]:
    """Return (sender, receiver) of every pair of ranks that talks, in an order that all ranks share."""
    rank_of = [stage.rank for stage in plan.stages]
    words = [parse_word(word) for program in plan.programs for word in program if "SEND" in word]
    return sorted({(rank_of[word.stage], rank_of[word.other_stage]) for word in words})


def _pair_group(pair: tuple[int, int], group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    ranks = [rank if group is None else dist.get_global_rank(group, rank) for rank in sorted(pair)]
    made: dist.ProcessGroup = dist.new_group(ranks, use_local_synchronization=True)
    return made


def _other(rank: int, other: int) -> int:
    """Return the other rank's number in a group of the two."""
    return int(other > rank)


def _work(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this process is not in the group"
    return work
