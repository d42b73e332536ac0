"""When ops began and ended on a GPU: events on streams, turned into the host's monotonic seconds.

The host runs ahead of the device, so that its own clock says when an op was launched and not when it ran. Not yet run
on a machine with GPUs.
"""

from __future__ import annotations

import time

import torch

from octoplan_runtime.progress import OpTimes


class CudaClock:
    """Reads events as monotonic seconds, counted from a moment at which the device was idle.

    Parameters
    ----------
    device:
        This rank's GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        torch.cuda.synchronize(device)
        self.restart()

    def restart(self) -> None:
        """Count from now on; the current stream must be idle."""
        self._origin = self.now()
        self._origin_s = time.monotonic()

    def now(self, stream: torch.cuda.Stream | None = None) -> torch.cuda.Event:
        """Mark what a stream, by default the current one, has been given so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream or torch.cuda.current_stream(self._device))
        return event

    def seconds(self, event: torch.cuda.Event) -> float:
        """Return when a stream came to a mark; it must have."""
        return self._origin_s + 1e-3 * float(self._origin.elapsed_time(event))


class CudaOpTimes(OpTimes):
    """Start and end of every word, by events of the compute stream.

    Parameters
    ----------
    num_words:
        Of the program.
    clock:
        Reads the events.
    """

    def __init__(self, num_words: int, clock: CudaClock) -> None:
        super().__init__(num_words)
        self._clock = clock
        self._begun: dict[int, torch.cuda.Event] = {}
        self._finished: dict[int, torch.cuda.Event] = {}

    def begin(self, position: int) -> None:
        """Mark the compute stream."""
        self._begun[position] = self._clock.now()

    def finish(self, position: int) -> None:
        """Mark the compute stream."""
        self._finished[position] = self._clock.now()

    def resolve(self) -> None:
        """Read all marks; the compute stream is idle."""
        for marks, times in ((self._begun, self.start), (self._finished, self.end)):
            for position, event in marks.items():
                times[position] = self._clock.seconds(event)
            marks.clear()
        self._clock.restart()
