"""The search: annealing chains over partition, placement and policy on both cores, restarted from an elite pool.

Anytime: it can be stopped between chunks of a fraction of a second, and always holds a valid best candidate. Chains
run without the interpreter's lock, each with a seed of its own, and meet only between generations: with a number of
evaluations as the limit, the result does not depend on which chain is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from octoplan.ordering import OrderedPlan
from octoplan.tuner.annealing_kernel import anneal_kernel
from octoplan.tuner.arrays import ProblemArrays
from octoplan.tuner.budget import Budget
from octoplan.tuner.candidate import Candidate, Pricer
from octoplan.tuner.elite import Elite
from octoplan.tuner.even_starts import even_starts
from octoplan.tuner.finish import finish
from octoplan_solvers.problem import Assignment

NUM_THREADS = 2
#: A chunk of a chain is about this long, so that limits and Ctrl-C are kept.
_CHUNK_S = 0.15
_DIMENSIONS = ("order", "partition", "placement")
#: Share of the budget after which no further start is priced, of those given (seconds only) and of evened ones.
_STARTS_SHARE = 0.5
_EVEN_STARTS_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Generation:
    """A part of the budget in which chains cool from ``hot`` to ``cold`` (shares of the makespan).

    ``until`` is a share of what was left when the first generation began. The chains of a generation go on from the
    best candidates of as many chains of the one before.
    """

    until: float
    hot: float
    cold: float
    policy_share: float
    partition_share: float
    num_chains: int = NUM_THREADS


#: Wide first: chains from different starts, which keep much of their placement; the best go on at lower temperatures,
#: at last in the order's policy alone. The rest of the budget is for `finish`.
_GENERATIONS = (
    Generation(0.22, 0.004, 0.0006, 0.30, 0.60, num_chains=4),
    Generation(0.50, 0.002, 0.0003, 0.30, 0.45),
    Generation(0.84, 0.001, 0.00003, 0.40, 0.35),
    Generation(0.91, 0.0005, 0.00001, 1.00, 0.00),
)


@dataclass
class SearchTrace:
    """Improvements: seconds (or evaluations, if they are the limit), dimension of the moves, makespan.

    ``elite`` are the best candidates at the end, for whoever searches a neighbouring problem.
    """

    entries: list[tuple[float, str, float]] = field(default_factory=list)
    elite: list[Candidate] = field(default_factory=list)


def search(
    pricer: Pricer,
    starts: Iterable[Assignment],
    budget: Budget,
    *,
    seed: int,
    good_enough_s: float = 0.0,
    on_best: Callable[[Candidate], None] = lambda candidate: None,
    trace: SearchTrace | None = None,
) -> OrderedPlan | None:
    """Return the best plan found that fits, or None if no start fits and no plan is known.

    Parameters
    ----------
    good_enough_s:
        Stop as soon as a candidate is no longer than this (a lower bound, say).
    on_best:
        Told of every improvement.
    trace:
        Filled with the improvements.
    """
    elite = Elite()
    pool = Elite(size=_GENERATIONS[0].num_chains)
    trace = SearchTrace() if trace is None else trace

    def offer(candidate: Candidate, dimension: str) -> None:
        if elite.add(candidate):
            at = budget.elapsed_s if budget.max_evaluations is None else float(budget.evaluations)
            trace.entries.append((at, dimension, candidate.makespan_s))
            on_best(candidate)

    def price(assignments: Iterable[Assignment], is_over: Callable[[], bool]) -> None:
        for assignment in assignments:
            if pool.members and (is_over() or elite.best_makespan_s <= good_enough_s):
                return
            candidate = pricer.best(assignment, give_up_s=pool.worst_makespan_s, should_stop=is_over)
            budget.evaluations += 1
            if candidate is not None:
                pool.add(candidate)
                offer(candidate, "start")

    regular = list(starts)
    even = even_starts(pricer.problem, pricer.arrays, regular, seed=seed)
    price(regular, lambda: budget.is_late(_STARTS_SHARE))
    price(even, lambda: budget.spent() >= _EVEN_STARTS_SHARE)
    if pool.members:
        anneal(pricer, pool.members, budget, offer, seed=seed, good_enough_s=good_enough_s)
    trace.elite = elite.members
    return finish(pricer, elite, budget, seed=seed, good_enough_s=good_enough_s)


def anneal(
    pricer: Pricer,
    starts: Sequence[Candidate],
    budget: Budget,
    offer: Callable[[Candidate, str], None],
    *,
    seed: int,
    good_enough_s: float = 0.0,
    generations: Sequence[Generation] = _GENERATIONS,
) -> None:
    """Run one generation after the other; every chain's best candidate is offered with its dimension."""
    best = list(starts)
    begin = budget.spent()
    for number, generation in enumerate(generations):
        until = begin + (1 - begin) * generation.until
        chains = [
            _Chain(start, start, seed + 1000 * number + 100_003 * index)
            for index, start in enumerate((best * generation.num_chains)[: generation.num_chains])
        ]
        _run_generation(pricer.arrays, chains, budget, generation, until, good_enough_s, offer)
        best = sorted((chain.best for chain in chains), key=lambda candidate: candidate.makespan_s)


@dataclass
class _Chain:
    """One annealing walk: where it is, and the best it has met."""

    current: Candidate
    best: Candidate
    seed: int
    improved: tuple[int, int, int] = (0, 0, 0)


def _run_generation(
    arrays: ProblemArrays,
    chains: list[_Chain],
    budget: Budget,
    generation: Generation,
    until: float,
    good_enough_s: float,
    offer: Callable[[Candidate, str], None],
) -> None:
    """Run every chain through the generation's part of the budget, chunk by chunk."""
    begin = budget.spent()
    size = 1 if budget.max_evaluations is None else _fixed_chunk(budget.max_evaluations, len(chains))
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        while (spent := budget.spent()) < until and min(map(_best_s, chains)) > good_enough_s:
            progress = (spent - begin) / (until - begin)
            started = time.monotonic()
            list(pool.map(lambda chain: _run_chunk(arrays, chain, size, generation, progress), chains))  # noqa: B023
            budget.evaluations += len(chains) * size
            for chain in chains:
                offer(chain.best, _dimension(chain))
            if budget.max_evaluations is None:
                size = _next_size(size, time.monotonic() - started)


def _best_s(chain: _Chain) -> float:
    return chain.best.makespan_s


def _fixed_chunk(max_evaluations: int, num_chains: int) -> int:
    return max(1, min(256, max_evaluations // (num_chains * 40)))


def _next_size(size: int, seconds: float) -> int:
    """Return the size that takes about a chunk's time, growing at most fourfold."""
    return max(1, min(4 * size, int(size * _CHUNK_S / max(seconds, 1e-4))))


def _run_chunk(
    arrays: ProblemArrays, chain: _Chain, size: int, generation: Generation, progress: float
) -> None:
    """Walk ``size`` evaluations at the temperature that the progress calls for."""
    temperature = generation.hot * (generation.cold / generation.hot) ** progress
    start = chain.current
    current, best, counts = anneal_kernel(
        arrays,
        start.cuts,
        start.ranks,
        start.rule,
        start.delta,
        start.makespan_s,
        size,
        temperature,
        temperature,
        generation.policy_share,
        generation.partition_share,
        chain.seed,
    )
    chain.seed += 1
    chain.current = Candidate(*current)
    if best[4] < chain.best.makespan_s:
        chain.best = Candidate(*best)
        chain.improved = tuple(counts[:, 2].tolist())


def _dimension(chain: _Chain) -> str:
    return _DIMENSIONS[max(range(3), key=lambda index: chain.improved[index])]
