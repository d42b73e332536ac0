"""Stopping solvers from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ortools.sat.python import cp_model


def is_stopped(stop: threading.Event | None) -> bool:
    """True once the event is set; None: never."""
    return stop is not None and stop.is_set()


@contextmanager
def stopped_by(solver: cp_model.CpSolver, stop: threading.Event | None) -> Iterator[None]:
    """Stop the search within a tenth of a second once the event is set; None: never."""
    if stop is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            if stop.is_set():
                solver.stop_search()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
