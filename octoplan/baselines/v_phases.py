"""Orders of a rank with two stages in a V, written phase by phase as the papers draw them."""

from __future__ import annotations

from collections import Counter, deque

from octoplan.baselines.schedule import Op


class VPhases:
    """Collects the order of one rank; microbatches are numbered in the order in which ops are added.

    Words are ``F0``, ``I1``, ``W0``, ``B1``: 0 is the rank's stage on the way down the ranks, 1 the one on
    the way back up. A W takes the oldest I of its stage that has no W yet; ``W`` alone the oldest of both.
    """

    def __init__(self, rank: int, num_ranks: int) -> None:
        self.order: list[Op] = []
        self._stages = (rank, 2 * num_ranks - 1 - rank)
        self._next: Counter[tuple[str, int]] = Counter()
        self._without_w: deque[tuple[int, int]] = deque()

    def add(self, words: str, times: int = 1) -> None:
        """Append a phase: some words, so many times."""
        for word in words.split() * times:
            if word == "W":
                self._add_weight(*self._without_w[0])
            elif word[0] == "W":
                stage = self._stages[int(word[1])]
                self._add_weight(*next(pending for pending in self._without_w if pending[0] == stage))
            else:
                self._add_step(word[0], self._stages[int(word[1])])

    def _add_weight(self, stage: int, microbatch: int) -> None:
        self._without_w.remove((stage, microbatch))
        self.order.append((stage, "W", microbatch))

    def _add_step(self, kind: str, stage: int) -> None:
        direction = "F" if kind == "F" else "B"
        microbatch = self._next[direction, stage]
        self._next[direction, stage] += 1
        self.order.append((stage, kind, microbatch))
        if kind == "I":
            self._without_w.append((stage, microbatch))
