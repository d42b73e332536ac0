"""Successive halving: what cannot be compared by moves from one to the other shares a budget by promise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from octoplan.tuner import Budget

#: Where each round ends, as a share of what the race may spend; after each the better half goes on.
ROUNDS = (0.4, 0.7, 1.0)


class Contender(Protocol):
    """A search of its own that can be continued."""

    @property
    def best_s(self) -> float:
        """Makespan of the best that it has found, infinite if there is none."""

    def advance(self, budget: Budget, round_number: int) -> None:
        """Search on until the budget, which is its own, is spent."""


AnyContender = TypeVar("AnyContender", bound=Contender)


def race(
    contenders: Sequence[AnyContender], budget: Budget, *, until: float, good_enough_s: float
) -> list[AnyContender]:
    """Spend the budget up to the share ``until`` of it; return all contenders, best first.

    The contenders of a round get equal parts of it, one after the other: with evaluations as the limit, the result
    is the same every time.
    """
    begin = budget.spent()
    alive = list(contenders)
    for number, share in enumerate(ROUNDS):
        end = begin + share * (until - begin)
        for position, contender in enumerate(alive):
            part = (end - budget.spent()) / (len(alive) - position)
            if part <= 0 or min(one.best_s for one in contenders) <= good_enough_s:
                break
            own = part_of(budget, part)
            contender.advance(own, number)
            budget.evaluations += own.evaluations
        alive = sorted(alive, key=lambda one: one.best_s)[: (len(alive) + 1) // 2]
    return sorted(contenders, key=lambda one: one.best_s)


def part_of(budget: Budget, share: float) -> Budget:
    """Return a budget that begins now and lasts for a share of the whole."""
    most = budget.max_evaluations
    return replace(
        budget,
        seconds=share * budget.seconds,
        max_evaluations=None if most is None else max(1, round(share * most)),
        started=time.monotonic(),
        evaluations=0,
    )
