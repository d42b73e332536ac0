"""Seconds and bytes of one op, on CPU and CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from octoplan_runtime.profiler.live_tensors import LiveTensors


class Stopwatch:
    """Times calls, each from an idle device to an idle device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def seconds(self, call: Callable[[], object]) -> float:
        """Return how long a call takes."""
        self._synchronise()
        start = time.perf_counter()
        call()
        self._synchronise()
        return time.perf_counter() - start

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class MemoryMeter:
    """Tells what ops allocate: by the caching allocator on CUDA, by counting tensors elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors = LiveTensors()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count within."""
        if self._device.type == "cuda":
            yield
        else:
            with self._tensors:
                yield

    def live(self) -> int:
        """Return the bytes that are allocated now, and take them for the peak."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return int(torch.cuda.memory_allocated(self._device))
        self._tensors.restart()
        return self._tensors.live

    def peak(self) -> int:
        """Return the most that has been allocated since `live`."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        return self._tensors.peak
