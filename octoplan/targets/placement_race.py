"""The search where only a few placements are allowed: one field of candidates for each, and a race between them.

Within a field the partition and the order's policy are annealed as in `octoplan.tuner`; the placement stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from octoplan.ordering import OrderedPlan
from octoplan.targets.race import race
from octoplan.targets.target import OnBest
from octoplan.tuner import Budget, Candidate, Pricer, SearchTrace
from octoplan.tuner.elite import Elite
from octoplan.tuner.even_starts import even_starts
from octoplan.tuner.finish import finish
from octoplan.tuner.search import Generation, anneal
from octoplan_solvers.problem import Assignment

#: Shares of policy moves and of partition moves add up to one: no placement moves. One entry for each round.
_GENERATIONS = (
    (Generation(1.0, 0.004, 0.0003, 0.40, 0.60),),
    (Generation(1.0, 0.002, 0.0001, 0.45, 0.55),),
    (Generation(0.8, 0.001, 0.00003, 0.50, 0.50), Generation(1.0, 0.0005, 0.00001, 1.00, 0.00)),
)
#: Share of the budget after which orders are finished.
_UNTIL = 0.9
#: Share of the seconds after which no start is priced any more, and of the budget that evened starts may cost.
_STARTS_UNTIL = 0.5
_EVEN_SHARE = 0.2


def search_placements(
    pricer: Pricer,
    starts: Sequence[Assignment],
    budget: Budget,
    *,
    seed: int,
    good_enough_s: float,
    on_best: OnBest,
    trace: SearchTrace,
) -> OrderedPlan | None:
    """Return the best plan found on one of the starts' placements, or None if no start fits."""
    news = _News(on_best, trace)
    fields = [
        _Field(pricer, list(own), budget, seed + 10_000 * number, good_enough_s, news)
        for number, (_, own) in enumerate(groupby(sorted(starts, key=_ranks), key=_ranks))
    ]
    fields = [field for field in fields if field.elite.members]
    if not fields:
        return None
    begin = budget.spent()
    for number, field in enumerate(fields):
        until = begin + _EVEN_SHARE * (number + 1) / len(fields)
        field.price(even_starts(pricer.problem, pricer.arrays, field.starts, seed=seed), until)
    race(fields, budget, until=_UNTIL, good_enough_s=good_enough_s)
    merged = Elite()
    for field in fields:
        for member in field.elite.members:
            merged.add(member)
    return finish(pricer, merged, budget, seed=seed, good_enough_s=good_enough_s)


def _ranks(start: Assignment) -> tuple[int, ...]:
    return start.ranks


class _News:
    """Passes on what is better than everything before, whichever field it comes from."""

    def __init__(self, on_best: OnBest, trace: SearchTrace) -> None:
        self._on_best, self._trace = on_best, trace
        self._best_s = float("inf")

    def tell(self, at: float, dimension: str, candidate: Candidate) -> None:
        """Take in an improvement of one field."""
        if candidate.makespan_s < self._best_s:
            self._best_s = candidate.makespan_s
            self._trace.entries.append((at, dimension, candidate.makespan_s))
            self._on_best(candidate)


class _Field:
    """The candidates on one placement."""

    def __init__(
        self,
        pricer: Pricer,
        starts: Sequence[Assignment],
        budget: Budget,
        seed: int,
        good_enough_s: float,
        news: _News,
    ) -> None:
        self.elite = Elite()
        self.starts = starts
        self._pricer, self._whole, self._seed = pricer, budget, seed
        self._good_enough_s, self._news = good_enough_s, news
        self.price(starts)

    def price(self, starts: Iterable[Assignment], until: float = math.inf) -> None:
        """Take in starts as long as there is time, and less than the share ``until`` of the budget is spent."""
        budget = self._whole
        for start in starts:
            if budget.is_late(_STARTS_UNTIL) or budget.spent() >= until:
                break
            candidate = self._pricer.best(start, should_stop=lambda: budget.is_late(_STARTS_UNTIL))
            budget.evaluations += 1
            if candidate is not None:
                self._offer(candidate, "start", 0)

    @property
    def best_s(self) -> float:
        """Makespan of the best candidate."""
        return self.elite.best_makespan_s

    def advance(self, budget: Budget, round_number: int) -> None:
        """Anneal from the field's elite."""
        anneal(
            self._pricer,
            self.elite.members,
            budget,
            lambda candidate, dimension: self._offer(candidate, dimension, budget.evaluations),
            seed=self._seed + 1000 * round_number,
            good_enough_s=self._good_enough_s,
            generations=_GENERATIONS[round_number],
        )

    def _offer(self, candidate: Candidate, dimension: str, evaluations: int) -> None:
        if self.elite.add(candidate):
            whole = self._whole
            counts = whole.max_evaluations is not None
            at = float(whole.evaluations + evaluations) if counts else whole.elapsed_s
            self._news.tell(at, dimension, candidate)
