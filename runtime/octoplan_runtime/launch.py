"""Start one local process per rank, watch over them, and end them all when one fails.

The processes see the same environment as under ``torchrun``, so a rank's code is the same either way. They
come from a fork server that has torch loaded already.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from octoplan_runtime.board import Board
from octoplan_runtime.errors import say
from octoplan_runtime.fork_server import fork_server

#: How long the other ranks may take to end by themselves after one has failed.
_GRACE_S = 5.0
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LocalRun:
    """How a local run ended: exit code of every rank, negative for a signal, and the report of rank 0."""

    exit_codes: list[int]
    report: str | None

    @property
    def exit_code(self) -> int:
        """0 if every rank ended well; 2 if one found bad input; else 1."""
        if all(code == 0 for code in self.exit_codes):
            return 0
        return 2 if 2 in self.exit_codes else 1


def launch_local(target: Callable[..., None], num_ranks: int, arguments: Sequence[Any] = ()) -> LocalRun:
    """Call ``target(*arguments)`` in one process per rank and return how they ended.

    Parameters
    ----------
    target:
        A module-level function; it finds ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` in the
        environment.
    num_ranks:
        Number of processes.
    arguments:
        Picklable.
    """
    context = fork_server()
    store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    board = Board(store)
    processes = [
        context.Process(target=_enter, args=(rank, num_ranks, store.port, target, tuple(arguments)))
        for rank in range(num_ranks)
    ]
    with _ended_in_any_case(processes):
        for process in processes:
            process.start()
        _watch(processes, board)
    return LocalRun([_exit_code(process) for process in processes], board.take_report())


def _enter(
    rank: int, num_ranks: int, port: int, target: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(num_ranks),
        MASTER_ADDR=_HOST,
        MASTER_PORT=str(port),
        # The store is already there, in the process that started this one.
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    # Ranks share the machine's cores; more threads each would only make them wait for one another.
    torch.set_num_threads(1)
    target(*arguments)


def _watch(processes: list[ForkServerProcess], board: Board) -> None:
    """Return when all have ended, or a while after one has failed."""
    deadline: float | None = None
    while running := [process for process in processes if process.exitcode is None]:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            return
        wait([process.sentinel for process in running], timeout=left_s)
        for rank, process in enumerate(processes):
            if process.exitcode not in (None, 0) and deadline is None:
                deadline = time.monotonic() + _GRACE_S
                _tell_others(rank, process.exitcode, board)


def _tell_others(rank: int, exit_code: int, board: Board) -> None:
    """Write down a death that the rank could not report itself, so that the others stop."""
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        text = f"rank {rank} was ended by {name}, last seen in {board.place_of(rank)}"
        if board.fail(text) == text:
            say(text)
    elif exit_code != 2:
        board.fail(f"rank {rank} ended with exit code {exit_code} in {board.place_of(rank)}")


@contextmanager
def _ended_in_any_case(processes: list[ForkServerProcess]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            if process.pid is not None and process.exitcode is None:
                process.kill()
        for process in processes:
            if process.pid is not None:
                process.join()


def _exit_code(process: ForkServerProcess) -> int:
    assert process.exitcode is not None, "joined"
    return process.exitcode
