"""The search: simulated annealing over partition, placement and rule, then the order's policy in detail.

A first version of the tuner: it prices every neighbour by list scheduling, and always holds a valid best candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from octoplan.ordering import OrderedPlan, order_by_policy
from octoplan.tuner.candidate import Candidate, Pricer
from octoplan.tuner.moves import PARTITION_MOVES, PLACEMENT_MOVES, is_allowed
from octoplan_solvers.list_scheduling import improve_policy, mutate_rule
from octoplan_solvers.problem import Assignment, PipelineProblem

#: Share of the evaluations (or of the time) that goes into partition and placement.
_ASSIGNMENT_SHARE = 0.8
#: Candidates that get a detailed policy search at the end.
_NUM_FINALISTS = 3
#: Annealing temperature at the start, as a share of the makespan.
_TEMPERATURE = 0.01


@dataclass
class Elite:
    """The best candidates so far, best first, each with its own assignment."""

    size: int = _NUM_FINALISTS
    members: list[Candidate] = field(default_factory=list)

    def add(self, candidate: Candidate) -> bool:
        """Take a candidate in if it is good enough; return whether it is the new best."""
        others = [member for member in self.members if member.assignment != candidate.assignment]
        replaced = [member for member in self.members if member.assignment == candidate.assignment]
        keep = min([candidate, *replaced], key=lambda member: member.makespan_s)
        was_best = self.members[0].makespan_s if self.members else math.inf
        self.members = sorted([*others, keep], key=lambda member: member.makespan_s)[: self.size]
        return candidate.makespan_s < was_best

    @property
    def best(self) -> Candidate | None:
        """The best candidate."""
        return self.members[0] if self.members else None


@dataclass(frozen=True)
class Budget:
    """How far the search is: 0 at the start, 1 at the end; asked before every evaluation."""

    spent: Callable[[], float]

    def is_over(self, share: float = 1.0) -> bool:
        """True once this share of the budget is spent."""
        return self.spent() >= share


def search(
    pricer: Pricer,
    starts: Iterable[Assignment],
    budget: Budget,
    *,
    seed: int,
    good_enough_s: float = 0.0,
    on_best: Callable[[Candidate], None] = lambda candidate: None,
) -> OrderedPlan | None:
    """Return the best plan found that fits, or None if no start fits.

    Parameters
    ----------
    good_enough_s:
        Stop as soon as a candidate is no longer than this (a lower bound, say).
    on_best:
        Told of every improvement.
    """
    elite = Elite()
    for start in starts:
        candidate = pricer.best(start)
        if candidate is not None and elite.add(candidate):
            on_best(candidate)
        if budget.is_over() and elite.members:
            break
    if elite.best is None:
        return None
    random = np.random.default_rng(seed)
    _anneal(pricer, elite, budget, random, good_enough_s, on_best)
    return _finish(pricer, elite, budget, seed, good_enough_s)


def _anneal(
    pricer: Pricer,
    elite: Elite,
    budget: Budget,
    random: np.random.Generator,
    good_enough_s: float,
    on_best: Callable[[Candidate], None],
) -> None:
    """Walk from neighbour to neighbour; a worse one is taken with a probability that falls over the budget."""
    assert elite.best is not None
    current = elite.best
    since_best = 0
    while not budget.is_over(_ASSIGNMENT_SHARE) and elite.best.makespan_s > good_enough_s:
        neighbour = _neighbour(pricer.problem, current, random)
        if neighbour is None:
            continue
        cooled = _TEMPERATURE * max(1e-3, 1 - budget.spent() / _ASSIGNMENT_SHARE) ** 2
        allowed = current.makespan_s * (1 - cooled * math.log(1 - random.random()))
        makespan = pricer.price(neighbour.assignment, neighbour.rule, allowed)
        since_best += 1
        if makespan <= allowed:
            current = Candidate(neighbour.assignment, neighbour.rule, makespan)
            if elite.add(current):
                on_best(current)
                since_best = 0
        if since_best > 2000:
            current = elite.members[int(random.integers(len(elite.members)))]
            since_best = 0


def _neighbour(problem: PipelineProblem, current: Candidate, random: np.random.Generator) -> Candidate | None:
    draw = random.random()
    if draw < 0.15:
        return Candidate(current.assignment, mutate_rule(current.rule, random), math.inf)
    moves = PARTITION_MOVES if draw < 0.7 else PLACEMENT_MOVES
    moved = moves[int(random.integers(len(moves)))](current.assignment, random, problem.num_ranks)
    if moved is None or not is_allowed(moved, problem.num_ranks, problem.max_stages_per_rank):
        return None
    return Candidate(moved, current.rule, math.inf)


def _finish(
    pricer: Pricer, elite: Elite, budget: Budget, seed: int, good_enough_s: float
) -> OrderedPlan | None:
    """Search the policy of each finalist in detail, and take the best exact simulation that fits."""
    best: OrderedPlan | None = None
    remaining = 1.0 - _ASSIGNMENT_SHARE
    for number, candidate in enumerate(elite.members):
        scheduler = pricer.scheduler(candidate.assignment)
        if scheduler is None or (best is not None and best.makespan_s <= good_enough_s):
            continue
        until = _ASSIGNMENT_SHARE + remaining * (number + 1) / len(elite.members)

        def should_stop(until: float = until) -> bool:
            pricer.num_evaluations += 1
            return budget.is_over(until)

        policy, _ = improve_policy(
            scheduler, evaluations=10**9, seed=seed, start=candidate.rule, should_stop=should_stop
        )
        for choice in (policy, candidate.rule.on(scheduler.staged)):
            plan = order_by_policy(scheduler, choice)
            fits = not plan.excess_bytes().any()
            if fits and (best is None or plan.makespan_s < best.makespan_s):
                best = plan
    return best
