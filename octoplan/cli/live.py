"""The live display of a compilation, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

import octoplan
from octoplan.cli.console import err, percent, seconds

_BAR_WIDTH = 30


@contextmanager
def compile_progress(
    quiet: bool,
) -> Iterator[tuple[Callable[[octoplan.Progress], None], Callable[[], bool]]]:
    """Show a live display on a terminal; yield the two callbacks of `octoplan.CompileOptions`.

    Ctrl-C asks the compilation to end with the best plan so far; a second one ends the program.
    """
    stop = threading.Event()
    with _first_interrupt_sets(stop):
        if quiet or not err.is_terminal:
            yield (lambda progress: None), stop.is_set
            return
        spinner = Spinner("dots")
        with Live(console=err, transient=True, refresh_per_second=8) as live:

            def show(progress: octoplan.Progress) -> None:
                live.update(render(progress, spinner, ends=stop.is_set()))

            show(octoplan.Progress("starting"))
            yield show, stop.is_set


def render(progress: octoplan.Progress, spinner: Spinner, *, ends: bool = False) -> RenderableType:
    """Return the display: phase and time; makespan, bound and gap; what moves, and how fast.

    Parameters
    ----------
    ends:
        Whether the compilation was asked to end.
    """
    head = Table.grid(padding=(0, 1))
    phase = f"{progress.phase}, ending with the best plan so far" if ends else progress.phase
    bar = ProgressBar(total=1.0, completed=progress.spent, width=_BAR_WIDTH)
    head.add_row(spinner, Text(phase, style="bold"), bar, Text(_left(progress)))
    lines = [line for line in (_quality(progress), _pace(progress)) if line]
    return Group(head, *(Text(f"  {line}") for line in lines))


def _left(progress: octoplan.Progress) -> str:
    return "" if progress.left_s is None else f"{progress.left_s:,.0f} s left"


def _quality(progress: octoplan.Progress) -> str:
    best, bound = progress.best_makespan_s, progress.lower_bound_s
    parts = []
    if best is not None:
        parts.append(f"best {seconds(best)}")
    if bound is not None:
        parts.append(f"bound {seconds(bound)}")
    if best is not None and bound:
        parts.append(f"gap {percent(best / bound - 1)}")
    return "   ".join(parts)


def _pace(progress: octoplan.Progress) -> str:
    parts = []
    if progress.dimension is not None:
        parts.append(f"last gain from {progress.dimension}")
    if progress.evaluations_per_s is not None:
        parts.append(f"{progress.evaluations_per_s:,.0f} evaluations/s, {progress.num_evaluations:,} in all")
    return "   ".join(parts)


@contextmanager
def _first_interrupt_sets(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(signum: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
