"""Ends this process when another rank has failed, or when this one has been in one op for too long.

A rank that waits for a transfer sits in a call that Python cannot interrupt; a thread beside it can still
end the process, with a line that says why.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from octoplan_runtime.board import Board
from octoplan_runtime.errors import say
from octoplan_runtime.progress import Progress

_PERIOD_S = 0.1
#: Torchrun ends all ranks once it sees one end; until then the others' watchdogs can say why they stop.
_LINGER_S = 4 * _PERIOD_S
#: Taken by whoever ends the process, the rank itself or its watchdog, so that one line is printed and not two.
_LEAVING = threading.Lock()


class Watchdog(threading.Thread):
    """Watches one rank.

    Parameters
    ----------
    board:
        Where failures are written down.
    progress:
        Where this rank is.
    rank, num_ranks:
        This rank and the number of ranks.
    timeout_s:
        The longest that a rank may stay in one op.
    """

    def __init__(self, board: Board, progress: Progress, rank: int, num_ranks: int, timeout_s: float) -> None:
        super().__init__(name="octoplan-watchdog", daemon=True)
        self._board = board
        self._progress = progress
        self._rank = rank
        self._num_ranks = num_ranks
        self._timeout_s = timeout_s
        self._stop = threading.Event()

    def stop(self) -> None:
        """Stop watching: the rank has come to its end, one way or the other."""
        self._stop.set()

    def run(self) -> None:
        """Look once in a while until stopped."""
        while not self._stop.wait(_PERIOD_S):
            try:
                self._board.place(self._rank, self._progress.word)
                failure = self._board.failure() or self._stuck()
            except Exception as error:
                failure = f"the run's store is gone ({type(error).__name__})"
            if failure is not None and not self._stop.is_set():
                leave(self._rank, self._progress.word, failure)

    def _stuck(self) -> str | None:
        waited_s = time.monotonic() - self._progress.since
        if waited_s <= self._timeout_s:
            return None
        places = [self._board.place_of(rank) for rank in range(self._num_ranks)]
        places[self._rank] = self._progress.word
        others = [f"rank {rank} in {place}" for rank, place in enumerate(places) if rank != self._rank]
        text = f"rank {self._rank} has been in {places[self._rank]} for more than {self._timeout_s:g} s"
        text = f"{text}; {', '.join(others)}" if others else text
        cause = self._board.fail(text)
        if cause == text:  # the first to notice draws the table for all
            say(hang_table(places))
        return cause


def hang_table(places: Sequence[str]) -> str:
    """Return one line per rank with the op that it is in."""
    width = len(str(len(places) - 1))
    return "\n".join(
        ["where each rank is:", *(f"  rank {rank:>{width}}  {place}" for rank, place in enumerate(places))]
    )


def leave(rank: int, word: str, failure: str) -> NoReturn:
    """Print one line and end this process at once, without running anything that might block."""
    _LEAVING.acquire()
    own = failure.startswith(f"rank {rank} ")
    say(failure if own else f"rank {rank} stopped in {word}: {failure}")
    sys.stdout.flush()
    if own and "TORCHELASTIC_RUN_ID" in os.environ:
        time.sleep(_LINGER_S)
    os._exit(1)
