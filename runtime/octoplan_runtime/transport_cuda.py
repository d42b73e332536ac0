"""Transfers between CUDA devices with NCCL. Written after torch's documentation; not yet run on a machine with GPUs.

NCCL runs the transfers of one communicator in the order in which they were posted. Each direction of a rank pair has a
communicator (and so a stream) of its own, or a RECV that still waits would hold up a SEND the other way. A posted
transfer waits for what the compute stream has been given so far, and ``wait`` makes the stream that is current then
wait for the transfer, not the host; so copies and compute overlap. What a transfer reads or writes is kept until it is
done, and a block of `BufferPool` is only written by transfers posted after the compute stream was given its last use:
the caching allocator never has to be told of other streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from octoplan_runtime.cuda_times import CudaClock
from octoplan_runtime.subgroups import Communicator, Subgroups
from octoplan_runtime.tensor_specs import TensorSpec
from octoplan_runtime.transport import Done, Receive, Transport
from octoplan_schemas import OpWord, Plan, parse_word


@dataclass(frozen=True, slots=True)
class _Send:
    tensors: list[torch.Tensor]
    works: list[dist.Work]
    posted: torch.cuda.Event
    left: torch.cuda.Event
    done: Done


class CudaTransport(Transport):
    """Sends and receives of this rank over one communicator per direction of a rank pair.

    Parameters
    ----------
    plan:
        Says which pairs talk.
    subgroups:
        Connects them.
    group:
        Process group with one process per rank of the plan; None for the default group.
    device:
        This rank's GPU.
    clock:
        Reads when a message began to travel and when it had left.
    """

    def __init__(
        self,
        plan: Plan,
        subgroups: Subgroups,
        group: dist.ProcessGroup | None,
        device: torch.device,
        clock: CudaClock,
    ) -> None:
        super().__init__(group, device)
        self._rank = dist.get_rank(group)
        self._clock = clock
        self._watch = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._under_way: deque[_Send] = deque()
        pairs = [pair for pair in directed_pairs(plan) if self._rank in pair]
        self._directions = {pair: self._connect(pair, subgroups) for pair in pairs}

    def send(self, word: OpWord, tensors: Sequence[torch.Tensor], rank: int, done: Done) -> None:
        """Post a message; what earlier ones had sent is let go of as soon as it has left."""
        self._collect()
        kept = [tensor.contiguous() for tensor in tensors]
        posted = self._clock.now()
        communicator = self._directions[self._rank, rank]
        works = [communicator.send([part], int(rank > self._rank), 0) for part in _bytes(kept)]
        with torch.cuda.stream(self._watch):
            for work in works:
                work.wait()
        self._under_way.append(_Send(kept, works, posted, self._clock.now(self._watch), done))

    def receive(self, specs: Sequence[TensorSpec], rank: int) -> Receive:
        """Post a receive from a rank; its buffers are in use from now on."""
        communicator = self._directions[rank, self._rank]
        tensors = [self.buffers.lend(spec) for spec in specs]
        works = [communicator.recv([part], int(rank > self._rank), 0) for part in _bytes(tensors)]
        return Receive(tensors, works)

    def flush(self) -> None:
        """Return when every send is done and the compute stream is idle."""
        torch.cuda.current_stream(self.device).wait_stream(self._watch)
        torch.cuda.current_stream(self.device).synchronize()
        self._collect()

    def _collect(self) -> None:
        while self._under_way and self._under_way[0].left.query():  # type: ignore[no-untyped-call]
            send = self._under_way.popleft()
            send.done(self._clock.seconds(send.posted), self._clock.seconds(send.left))

    def _connect(self, pair: tuple[int, int], subgroups: Subgroups) -> Communicator:
        """Connect both ends now, or the first transfer would hold up the host until the other end is there."""
        communicator = subgroups.make(sorted(pair), f"{pair[0]} to {pair[1]}")
        other = pair[0] if pair[1] == self._rank else pair[1]
        first = [torch.zeros(1, dtype=torch.uint8, device=self.device)]
        post = communicator.send if self._rank == pair[0] else communicator.recv
        post(first, int(other > self._rank), 0).wait()
        torch.cuda.current_stream(self.device).synchronize()
        return communicator


def directed_pairs(plan: Plan) -> list[tuple[int, int]]:
    """Return (sender, receiver) of every pair of ranks that talks, in an order that all ranks share."""
    rank_of = [stage.rank for stage in plan.stages]
    words = [parse_word(word) for program in plan.programs for word in program if "SEND" in word]
    return sorted({(rank_of[word.stage], rank_of[word.other_stage]) for word in words})


def _bytes(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return flat views: NCCL knows fewer types than torch, and nothing to send is not sent."""
    return [tensor.reshape(-1).view(torch.uint8) for tensor in tensors if tensor.numel()]
