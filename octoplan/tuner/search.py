"""The search: annealing chains over partition, placement and policy on both cores, restarted from an elite pool.

Anytime: it can be stopped between chunks of a fraction of a second, and always holds a valid best candidate. Chains
run without the interpreter's lock, each with a seed of its own, and meet only between generations: with a number of
evaluations as the limit, the result does not depend on which chain is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from octoplan.ordering import OrderedPlan
from octoplan.tuner.annealing_kernel import anneal_kernel
from octoplan.tuner.arrays import ProblemArrays, problem_arrays
from octoplan.tuner.budget import Budget
from octoplan.tuner.candidate import Candidate, Pricer
from octoplan.tuner.elite import Elite
from octoplan.tuner.finish import finish
from octoplan_solvers.problem import Assignment

NUM_CHAINS = 2
#: A chunk of a chain is about this long, so that limits and Ctrl-C are kept.
_CHUNK_S = 0.15
_DIMENSIONS = ("order", "partition", "placement")


@dataclass(frozen=True, slots=True)
class Generation:
    """A part of the budget in which every chain cools from ``hot`` to ``cold`` (shares of the makespan)."""

    until: float
    hot: float
    cold: float
    policy_share: float
    partition_share: float


#: Wide first, then from the elite at lower temperatures, then the order's policy alone. The rest is for `finish`.
_GENERATIONS = (
    Generation(0.30, 0.004, 0.0003, 0.25, 0.40),
    Generation(0.62, 0.002, 0.0001, 0.30, 0.40),
    Generation(0.83, 0.001, 0.00003, 0.40, 0.35),
    Generation(0.90, 0.0005, 0.00001, 1.00, 0.00),
)


@dataclass
class SearchTrace:
    """Improvements: seconds (or evaluations, if they are the limit), dimension of the moves, makespan."""

    entries: list[tuple[float, str, float]] = field(default_factory=list)


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
    """Return the best plan found that fits, or None if no start fits.

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
    trace = SearchTrace() if trace is None else trace

    def offer(candidate: Candidate, dimension: str) -> None:
        if elite.add(candidate):
            at = budget.elapsed_s if budget.max_evaluations is None else float(budget.evaluations)
            trace.entries.append((at, dimension, candidate.makespan_s))
            on_best(candidate)

    for start in starts:
        candidate = pricer.best(start)
        budget.evaluations += 1
        if candidate is not None:
            offer(candidate, "start")
    if not elite.members:
        return None
    arrays = problem_arrays(pricer.problem)
    for number, generation in enumerate(_GENERATIONS):
        if budget.spent() < generation.until and elite.best_makespan_s > good_enough_s:
            _run_generation(arrays, elite, budget, generation, seed + 1000 * number, good_enough_s, offer)
    return finish(pricer, elite, budget, seed=seed, good_enough_s=good_enough_s)


@dataclass
class _Chain:
    """One annealing walk: where it is, and the best it has met."""

    current: Candidate
    best: Candidate
    seed: int
    improved: tuple[int, int, int] = (0, 0, 0)


def _run_generation(
    arrays: ProblemArrays,
    elite: Elite,
    budget: Budget,
    generation: Generation,
    seed: int,
    good_enough_s: float,
    offer: Callable[[Candidate, str], None],
) -> None:
    """Run every chain through the generation's part of the budget, chunk by chunk."""
    chains = [
        _Chain(member, member, seed + 100_003 * index)
        for index, member in enumerate((elite.members * NUM_CHAINS)[:NUM_CHAINS])
    ]
    begin = budget.spent()
    size = 64 if budget.max_evaluations is None else _fixed_chunk(budget.max_evaluations)
    with ThreadPoolExecutor(NUM_CHAINS) as pool:
        while (spent := budget.spent()) < generation.until and elite.best_makespan_s > good_enough_s:
            progress = (spent - begin) / (generation.until - begin)
            started = time.monotonic()
            list(pool.map(lambda chain: _run_chunk(arrays, chain, size, generation, progress), chains))  # noqa: B023
            budget.evaluations += NUM_CHAINS * size
            for chain in chains:
                offer(chain.best, _dimension(chain))
            if budget.max_evaluations is None:
                size = _next_size(size, time.monotonic() - started)


def _fixed_chunk(max_evaluations: int) -> int:
    return max(1, min(256, max_evaluations // (NUM_CHAINS * 40)))


def _next_size(size: int, seconds: float) -> int:
    """Return the size that takes about a chunk's time, growing at most threefold."""
    return max(8, min(3 * size, int(size * _CHUNK_S / max(seconds, 1e-4))))


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
