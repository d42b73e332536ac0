"""Changes recomputed: each changed problem is searched, from the plan at hand, for an equal part of the time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from octoplan.compile_options import CompileOptions, Progress
from octoplan.errors import InfeasibleError
from octoplan.explain.changes import Change, Job
from octoplan.explain.explanation import WhatIf
from octoplan.optimise import Optimised, WarmStart, optimise

CONTROL, CONTROL_TEXT = "control", "the same job, searched again"


class Laboratory:
    """Runs one search after the other, and keeps what is left of the time even.

    Parameters
    ----------
    options:
        Time limit or evaluations for all searches together.
    num_searches:
        How many there will be.
    """

    def __init__(self, options: CompileOptions, num_searches: int) -> None:
        self._options = options
        self._left = num_searches
        counts = options.max_evaluations
        self._evaluations = None if counts is None else max(1, counts // num_searches)
        self._ends = time.monotonic() + options.time_limit_s

    def search_again(self, job: Job, known: WarmStart) -> Optimised | None:
        """Search the unchanged job; None if nothing fits."""
        return self._run(Change(CONTROL, CONTROL_TEXT, job.problem, job.model), known)

    def try_change(self, change: Change, known: WarmStart, reference_s: float) -> WhatIf:
        """Search a changed problem from what is known of the job."""
        found = self._run(change, change.translate(known))
        if found is None:
            return WhatIf(change.name, change.text, None, None, None)
        makespan_s = found.plan.makespan_s / change.microbatch_factor
        bound_s = found.certificate.bound.seconds / change.microbatch_factor
        gain = 1 - makespan_s / reference_s if reference_s > 0 else 0.0
        return WhatIf(change.name, change.text, makespan_s, gain, bound_s)

    def _run(self, change: Change, known: WarmStart) -> Optimised | None:
        options = self._share(change)
        self._left -= 1
        try:
            return optimise(change.problem, change.model, options, warm=known)
        except InfeasibleError:
            return None

    def _share(self, change: Change) -> CompileOptions:
        """Return options with an equal part of what is left."""
        options, left = self._options, max(self._left, 1)

        def tell(progress: Progress) -> None:
            options.on_progress(replace(progress, phase=f"{change.text}: {progress.phase}"))

        return replace(
            options,
            time_limit_s=max(self._ends - time.monotonic(), 0.0) / left,
            max_evaluations=self._evaluations,
            on_progress=tell,
        )


def by_gain(what_ifs: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
    """Sort, the largest gain first; those without a plan come last."""
    return tuple(sorted(what_ifs, key=lambda entry: -float("inf") if entry.gain is None else -entry.gain))
