"""Solvers in a thread of their own, so that Ctrl-C and deadlines are seen at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

Outcome = TypeVar("Outcome")
#: Seconds between two questions whether to stop.
_ASK_EVERY_S = 0.1


def run_stoppable(solve: Callable[[threading.Event], Outcome], should_stop: Callable[[], bool]) -> Outcome:
    """Return what ``solve`` returns; the event that it is given asks it to end soon with what it has.

    Parameters
    ----------
    should_stop:
        Asked ten times a second, here and not in the solver's thread; True sets the event.
    """
    event = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(solve, event)
        try:
            return _wait(future, event, should_stop)
        finally:
            event.set()


def _wait(future: Future[Outcome], event: threading.Event, should_stop: Callable[[], bool]) -> Outcome:
    while True:
        try:
            return future.result(timeout=_ASK_EVERY_S)
        except FutureTimeoutError:
            if should_stop():
                event.set()
