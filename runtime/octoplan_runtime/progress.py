"""Where a rank is: read by the watchdog, written at every op; and when each op began and ended."""

from __future__ import annotations

import time


class Progress:
    """The op that a rank is in and since when (monotonic seconds)."""

    __slots__ = ("since", "word")

    def __init__(self, word: str = "start") -> None:
        self.word = word
        self.since = time.monotonic()

    def enter(self, word: str) -> None:
        """Say that the rank is now in this op or phase."""
        self.word = word
        self.since = time.monotonic()


class OpTimes:
    """Start and end of every word of a program in the last step, monotonic seconds.

    Of a compute op: from the arrival of its inputs to its end. Of a SEND: from posting to completion. Of a
    RECV: from posting until its consumer had it.
    """

    def __init__(self, num_words: int) -> None:
        self.start = [0.0] * num_words
        self.end = [0.0] * num_words

    def begin(self, position: int) -> None:
        """Say that a word begins now."""
        self.start[position] = time.monotonic()

    def finish(self, position: int) -> None:
        """Say that a word has ended now."""
        self.end[position] = time.monotonic()

    def resolve(self) -> None:
        """Have all times of a step in place, at its end."""

    def on_clock(self, offset_s: float) -> list[tuple[float, float]]:
        """Return ``(start_s, end_s)`` of every word on a clock that this one is ``offset_s`` ahead of."""
        return [(start - offset_s, end - offset_s) for start, end in zip(self.start, self.end, strict=True)]
