"""`Reporter`: tells the caller what a compilation is doing, as often as a person can read it.

Every phase asks between chunks of work, or ten times a second, whether to stop. That question is the heartbeat here, so
that no phase needs to know about displays.
"""

from __future__ import annotations

import time

from octoplan.compile_options import CompileOptions, Progress
from octoplan.tuner import Budget, SearchTrace
from octoplan.tuner.budget import Priced

#: Seconds between two reports.
_EVERY_S = 0.1


class Reporter:
    """Collects phase, best makespan, bound, evaluations and time, and passes them to the options' callback.

    Parameters
    ----------
    options:
        ``on_progress`` and ``should_stop`` are called, always in the thread that asks.
    started:
        Value of ``time.monotonic()`` from which the time limit counts.
    """

    def __init__(self, options: CompileOptions, started: float) -> None:
        self._options, self._started = options, started
        self._budget: Budget | None = None
        self._trace = SearchTrace()
        self._phase = "starting"
        self._bound_s: float | None = None
        self._best_s: float | None = None
        self._told_at = float("-inf")
        self._told_phase = ""
        self._search_began: float | None = None

    def watch(self, budget: Budget, trace: SearchTrace) -> None:
        """Read evaluations and dimensions from here on from a budget and a trace."""
        self._budget, self._trace = budget, trace

    def begin(self, phase: str, bound_s: float) -> None:
        """Name the phase that begins, and the bound known by now."""
        self._phase, self._bound_s = phase, bound_s
        if phase == "search":
            self._search_began = time.monotonic()
        self._tell()

    def on_best(self, plan: Priced) -> None:
        """Take in a plan or candidate; only an improvement counts."""
        if self._best_s is None or plan.makespan_s < self._best_s:
            self._best_s = plan.makespan_s
            self._tell()

    def should_stop(self) -> bool:
        """Ask the caller whether to stop; now and then report, too."""
        if time.monotonic() - self._told_at >= _EVERY_S or self._current_phase() != self._told_phase:
            self._tell()
        return self._options.should_stop()

    def _tell(self) -> None:
        self._told_at, self._told_phase = time.monotonic(), self._current_phase()
        self._options.on_progress(self._progress())

    def _current_phase(self) -> str:
        """The search names its own phases in the budget."""
        return self._budget.phase if self._budget is not None and self._phase == "search" else self._phase

    def _progress(self) -> Progress:
        options, budget, phase = self._options, self._budget, self._current_phase()
        evaluations = 0 if budget is None else budget.evaluations
        elapsed_s = time.monotonic() - self._started
        counts = options.max_evaluations is not None
        if counts:
            spent = evaluations / options.max_evaluations if options.max_evaluations else 0.0
        else:
            spent = elapsed_s / options.time_limit_s if options.time_limit_s > 0 else 1.0
        return Progress(
            phase=phase,
            best_makespan_s=self._best_s,
            lower_bound_s=self._bound_s,
            num_evaluations=evaluations,
            spent=min(spent, 1.0),
            dimension=self._trace.entries[-1][1] if phase == "search" and self._trace.entries else None,
            evaluations_per_s=self._rate(evaluations) if phase == "search" else None,
            left_s=None if counts else max(options.time_limit_s - elapsed_s, 0.0),
        )

    def _rate(self, evaluations: int) -> float | None:
        if self._search_began is None:
            return None
        return evaluations / max(time.monotonic() - self._search_began, 1e-3)
