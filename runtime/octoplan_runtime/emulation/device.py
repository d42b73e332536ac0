"""An executor whose ops take the plan's time and whose messages take the link's."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from octoplan_runtime.emulation.costs import EmulatedCosts
from octoplan_runtime.executor import PipelineExecutor
from octoplan_runtime.transport import Done, Transport, post_send
from octoplan_schemas import OpWord

#: Short enough for many ranks on two cores: ops are a hundred times as long.
_SPIN_S = 3e-4


class EmulatedExecutor(PipelineExecutor):
    """Every op takes the layers' time from its start, in which the little work that emulated layers do is hidden, as
    launching kernels is behind the kernels of a device.

    Parameters
    ----------
    costs:
        How long.
    """

    def __init__(self, *arguments: Any, costs: EmulatedCosts, **options: Any) -> None:
        self._costs = costs
        super().__init__(*arguments, **options)

    def _hold(self, word: OpWord, start_s: float) -> None:
        wait_until(start_s + self._costs.duration_s(word))

    def _make_transport(self) -> Transport:
        return EmulatedTransport(self._group, self._device, self._costs)


def wait_until(deadline_s: float) -> None:
    """Return at a monotonic time, in seconds: sleep for most of it, and for the rest only let others run.

    A sleep ends a tenth of a millisecond late, and each rank would be late once in every op.
    """
    time.sleep(max(deadline_s - time.monotonic() - _SPIN_S, 0.0))
    while time.monotonic() < deadline_s:
        time.sleep(0)


@dataclass(frozen=True, slots=True)
class _Message:
    tensors: list[torch.Tensor]
    posted_s: float
    busy_s: float
    latency_s: float
    done: Done


class EmulatedTransport(Transport):
    """Holds every message back for as long as its link would take, first in, first out per rank pair.

    One thread per destination sends each message for real when it would arrive.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device, costs: EmulatedCosts) -> None:
        super().__init__(group, device)
        self._costs = costs
        self._links: dict[int, _Link] = {}

    def send(self, word: OpWord, tensors: Sequence[torch.Tensor], rank: int, done: Done) -> None:
        """Post a message; it arrives when its link would have carried it."""
        self._raise_error()
        if rank not in self._links:
            self._links[rank] = _Link(self, rank)
        kept = [tensor.contiguous() for tensor in tensors]
        busy_s, latency_s = self._costs.link_s(word.stage, word.other_stage)
        self._links[rank].queue.put(_Message(kept, time.monotonic(), busy_s, latency_s, done))

    def flush(self) -> None:
        """Return when every message has left; the threads end."""
        for link in self._links.values():
            link.queue.put(None)
        for link in self._links.values():
            link.join()
        self._links.clear()
        self._raise_error()

    def deliver(self, message: _Message, start_s: float, rank: int) -> None:
        """Send for real, in the thread of the link."""
        try:
            for work in post_send(message.tensors, rank, self._group):
                work.wait()
            message.done(start_s, time.monotonic())
        except Exception as error:
            self._error = error


class _Link(threading.Thread):
    """One direction of a rank pair."""

    def __init__(self, transport: EmulatedTransport, rank: int) -> None:
        super().__init__(name=f"octoplan-link-{rank}", daemon=True)
        self.queue: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._transport = transport
        self._rank = rank
        self.start()

    def run(self) -> None:
        """Carry messages until told to stop."""
        free_s = 0.0
        while (message := self.queue.get()) is not None:
            start_s = max(free_s, message.posted_s)
            free_s = start_s + message.busy_s
            time.sleep(max(free_s + message.latency_s - time.monotonic(), 0.0))
            self._transport.deliver(message, start_s, self._rank)
