"""The CUDA transport's bookkeeping without a GPU: streams and events that are always done, gloo in NCCL's place.

This shows that ranks, directions, sizes, order and times are right; what streams really do it cannot show.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from unittest import mock

import torch

from octoplan_runtime import Progress, executor, joined_group
from octoplan_runtime.cuda_times import CudaClock, CudaOpTimes
from octoplan_runtime.transport_cuda import CudaTransport
from tests.runtime import layers
from tests.runtime.pipeline_cases import Case, check_case, random_case


class Stream:
    """Everything given to it is done at once."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device

    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)

    def synchronize(self) -> None:
        pass


class Event:
    """Knows when it was recorded."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at_s: float | None = None

    def record(self, stream: Stream) -> None:
        assert isinstance(stream, Stream)
        self.at_s = time.monotonic()

    def query(self) -> bool:
        return self.at_s is not None

    def elapsed_time(self, later: Event) -> float:
        assert self.at_s is not None
        assert later.at_s is not None
        return 1e3 * (later.at_s - self.at_s)


def without_a_gpu() -> contextlib.ExitStack:
    """Patch what needs one."""
    patches = contextlib.ExitStack()
    for name, value in {
        "Stream": Stream,
        "Event": Event,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": Stream,
        "synchronize": lambda device: None,
    }.items():
        patches.enter_context(mock.patch.object(torch.cuda, name, value))

    def times(num_words: int, device: torch.device) -> tuple[CudaOpTimes, CudaClock]:
        clock = CudaClock(device)
        return CudaOpTimes(num_words, clock), clock

    patches.enter_context(mock.patch.object(executor, "_times", times))
    return patches


def cases(num_ranks: int) -> list[Case]:
    return [random_case(77 * num_ranks + number, num_ranks) for number in range(12)]


def check_cuda_transport(directory: str) -> None:
    """Run on every rank and write ``RANK.json``."""
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found: dict[str, list[str]] = {}
    progress = Progress()
    with joined_group(rank, num_ranks, 60.0, progress), without_a_gpu():
        for case in cases(num_ranks):
            found[case.name] = check_case(case, progress)
        found["times"] = check_times(cases(num_ranks)[0], progress)
    Path(directory, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def check_times(case: Case, progress: Progress) -> list[str]:
    """Every word has a time within the step, and none ends before it begins."""
    own = executor.PipelineExecutor(
        case.plan, case.layer, layers.loss_of, skips=case.skips, progress=progress
    )
    before = time.monotonic()
    own.step(*case.batch(0))
    after = time.monotonic()
    complaints = [] if isinstance(own._transport, CudaTransport) else ["another transport"]
    for word, start, end in zip(own.plan.programs[own.rank], own.times.start, own.times.end, strict=True):
        if not before - 1e-3 <= start <= end <= after + 1e-3:
            complaints.append(f"{word} from {start - before} to {end - before} of {after - before} s")
    return complaints
