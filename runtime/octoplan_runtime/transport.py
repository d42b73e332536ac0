"""Transfers between ranks: asynchronous sends, receives posted early, waits only where a tensor is needed.

Messages of a directed rank pair match first in, first out (gloo and NCCL ignore tags). A message is a list of
tensors whose shapes both ends know, one transfer each.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from octoplan_runtime.buffers import BufferPool
from octoplan_runtime.tensor_specs import TensorSpec
from octoplan_schemas import OpWord

#: Told when a message began to travel and when it had left, in monotonic seconds.
Done = Callable[[float, float], None]


@dataclass(slots=True)
class Receive:
    """A message that is on its way."""

    tensors: list[torch.Tensor]
    works: list[dist.Work]

    def wait(self) -> list[torch.Tensor]:
        """Return the tensors once they are here."""
        for work in self.works:
            work.wait()
        return self.tensors


@dataclass(slots=True)
class _Send:
    tensors: list[torch.Tensor]
    works: list[dist.Work]
    posted_s: float
    done: Done


class Transport:
    """Sends and receives of this rank.

    A thread waits for the sends in the order in which they were posted and lets go of each sent tensor as
    soon as its transfer is done: gloo cannot be asked whether a send is complete, and keeping every sent
    tensor to the end of the step is a known cause of running out of memory.

    Parameters
    ----------
    group:
        Process group with one process per rank of the plan; None for the default group.
    device:
        Where received tensors go.

    Attributes
    ----------
    buffers:
        The memory of received tensors.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self._group = group
        self.device = device
        self.buffers = BufferPool(device)
        self._sends: queue.SimpleQueue[_Send | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def send(self, word: OpWord, tensors: Sequence[torch.Tensor], rank: int, done: Done) -> None:
        """Post a message to a rank; ``done`` is called with the monotonic times at which it began and had left."""
        self._raise_error()
        kept = [tensor.contiguous() for tensor in tensors]
        works = post_send(kept, rank, self._group)
        self._ensure_thread()
        self._sends.put(_Send(kept, works, time.monotonic(), done))

    def receive(self, specs: Sequence[TensorSpec], rank: int) -> Receive:
        """Post a receive from a rank; its buffers are in use from now on."""
        tensors = [self.buffers.lend(spec) for spec in specs]
        return Receive(
            tensors, [_work(dist.irecv(tensor, group=self._group, group_src=rank)) for tensor in tensors]
        )

    def flush(self) -> None:
        """Return when every send is done; the thread ends."""
        if self._thread is not None:
            self._sends.put(None)
            self._thread.join()
            self._thread = None
        self._raise_error()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._complete_sends, name="octoplan-sends", daemon=True)
            self._thread.start()

    def _complete_sends(self) -> None:
        while (send := self._sends.get()) is not None:
            if self._error is None:
                self._complete(send)
            del send  # or the last sent tensors would live until the next send

    def _complete(self, send: _Send) -> None:
        try:
            for work in send.works:
                work.wait()
            send.done(send.posted_s, time.monotonic())
        except Exception as error:
            self._error = error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def post_send(tensors: Sequence[torch.Tensor], rank: int, group: dist.ProcessGroup | None) -> list[dist.Work]:
    """Post one transfer per contiguous tensor."""
    return [_work(dist.isend(tensor, group=group, group_dst=rank)) for tensor in tensors]


def _work(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this process is not in the group"
    return work
