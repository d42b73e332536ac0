"""`SequenceSearch` against the exhaustive search of one assignment, and against a listing of every order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from octoplan.ordering import confirm, run_order
from octoplan_solvers.order import Order
from octoplan_solvers.order_search import SequenceSearch
from octoplan_solvers.order_search.sequences import search as search_module
from octoplan_solvers.order_search.sequences.arrays import Arrays, build_arrays
from octoplan_solvers.staged import StagedProblem
from tests import reference_simulator
from tests.exhaustive.seen import Seen, new_table
from tests.solvers.order_search.assigned import Assigned, random_assigned
from tests.solvers.order_search.problems import (
    FEW_ORDERS,
    brute_force,
    brute_force_with_messages,
    equal_sizes_problem,
    random_problem,
)

#: Nodes of a level that suffice for every problem here.
WIDE = 1 << 17
#: Floats of the two sides are summed in different orders.
ROUNDING = 1e-9
#: Some at random; then those where every byte has to count, and those where messages leave in an order of their own.
BYTES_DECIDE = (56, 168, 193, 228, 234, 402, 495, 523, 578, 586, 680, 682, 705, 867, 897)
MESSAGES_DECIDE = (53, 193, 338, 349, 497, 527, 682, 818)
SEEDS = sorted({*range(25), *BYTES_DECIDE, *MESSAGES_DECIDE})
#: Of `random_problem` with few orders, likewise.
LISTED_SEEDS = (*range(8), 22, 66, 69, 112, 157, 160, 183, 185, 1056, 2085)


@cache
def seen() -> Seen:
    return new_table()


@cache
def optimum(seed: int) -> tuple[float, float]:
    return random_assigned(seed).optimum(seen())


def new_search(staged: StagedProblem) -> SequenceSearch:
    return SequenceSearch(staged, confirm(staged))


@pytest.mark.parametrize("seed", BYTES_DECIDE)
def test_the_seeds_make_every_byte_count(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []

    def noting(staged: StagedProblem, *, strict: bool) -> Arrays:
        readings.append(strict)
        return build_arrays(staged, strict=strict)

    monkeypatch.setattr(search_module, "build_arrays", noting)
    new_search(random_assigned(seed).staged).run(WIDE)
    assert readings == [False, True]


@pytest.mark.parametrize("seed", MESSAGES_DECIDE)
def test_the_seeds_make_the_order_of_messages_count(seed: int) -> None:
    found = new_search(random_assigned(seed).staged)
    found.run(WIDE)
    assert found.order is not None
    assert found.order.messages is not None


def require_valid(case: Assigned, found: SequenceSearch) -> None:
    """The order is a plan of the makespan that it claims, by a simulator of its own, and keeps every limit."""
    assert (found.order is None) == math.isinf(found.makespan_s)
    if found.order is None:
        return
    assert run_order(case.staged, found.order).makespan_s == found.makespan_s
    result = reference_simulator.simulate(case.plan(found.order), case.tiny.model, case.tiny.cluster)
    assert result.makespan_s == pytest.approx(found.makespan_s, rel=1e-12)
    for peak, limit in zip(result.peak_bytes, case.tiny.limits, strict=True):
        assert peak <= limit * (1 + ROUNDING)


def require_between(found: SequenceSearch, lower_s: float, makespan_s: float) -> None:
    """The optimum lies between these two: no bound is above the one, no order below the other."""
    assert found.bound_s <= makespan_s * (1 + ROUNDING)
    assert found.makespan_s >= lower_s * (1 - ROUNDING)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wide_search_settles_at_the_optimum(seed: int) -> None:
    case = random_assigned(seed)
    lower_s, makespan_s = optimum(seed)
    found = new_search(case.staged)
    found.run(WIDE)
    require_valid(case, found)
    require_between(found, lower_s, makespan_s)
    assert found.is_settled()
    assert found.makespan_s <= makespan_s * (1 + ROUNDING)
    assert found.bound_s == pytest.approx(found.makespan_s, rel=2 * ROUNDING)


@pytest.mark.parametrize("seed", SEEDS)
def test_narrow_searches_stay_valid_and_only_improve(seed: int) -> None:
    case = random_assigned(seed)
    found, bound_s, makespan_s = new_search(case.staged), 0.0, math.inf
    for width in (1, 2, 4, 16, 256):
        found.run(width)
        require_valid(case, found)
        require_between(found, *optimum(seed))
        assert found.bound_s >= bound_s
        assert found.makespan_s <= makespan_s
        bound_s, makespan_s = found.bound_s, found.makespan_s


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cutoff_above_the_optimum_loses_nothing_and_one_at_it_settles(seed: int) -> None:
    case = random_assigned(seed)
    whole = new_search(case.staged)
    whole.run(WIDE)
    if whole.order is None:
        return
    above, at, below = (new_search(case.staged) for _ in range(3))
    above.run(WIDE, whole.makespan_s * (1 + 1e-6))
    assert above.makespan_s == pytest.approx(whole.makespan_s, rel=ROUNDING)
    at.run(WIDE, whole.makespan_s)
    assert at.is_settled(whole.makespan_s)
    below.run(WIDE, whole.makespan_s / 2)
    assert below.is_settled(whole.makespan_s / 2)
    for cut in (above, at, below):
        require_valid(case, cut)
        require_between(cut, *optimum(seed))


@pytest.mark.parametrize("seed", [3, 8, 18, 168, 193, 682])
def test_stopped_anywhere_it_holds_a_valid_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node between two looks at `should_stop`."""
    monkeypatch.setattr(search_module, "_NODES_PER_CALL", 1)
    case = random_assigned(seed)
    for calls in (0, 1, 2, 5, 10, 20, 40):
        found = new_search(case.staged)
        left = iter(range(calls))
        found.run(WIDE, should_stop=lambda left=left: next(left, None) is None)  # type: ignore[misc]
        require_valid(case, found)
        require_between(found, *optimum(seed))
        if calls == 0:
            assert (found.order, found.bound_s) == (None, 0.0)


def test_what_is_known_from_elsewhere_is_kept() -> None:
    staged = equal_sizes_problem(2, 3, 2)
    first, second = new_search(staged), new_search(staged)
    first.run(WIDE)
    second.take(first.order, first.makespan_s, first.bound_s)
    assert second.is_settled()
    second.take(None, 0.0, 0.0)
    assert (second.order, second.makespan_s, second.bound_s) == (
        first.order,
        first.makespan_s,
        first.bound_s,
    )


def test_orders_that_are_refused_leave_the_bound() -> None:
    staged = equal_sizes_problem(2, 3, 2)
    found, refused = new_search(staged), SequenceSearch(staged, lambda order: None)
    found.run(WIDE)
    refused.run(WIDE)
    assert refused.order is None
    assert refused.bound_s <= found.makespan_s


@pytest.mark.parametrize("seed", LISTED_SEEDS)
@pytest.mark.parametrize("no_time", [0.0, 0.4])
def test_every_order_of_ops_and_messages_tried_gives_the_same(seed: int, no_time: float) -> None:
    """By every byte: the brute force lists all orders of microbatches and messages, the search proves its optimum."""
    random = np.random.default_rng(seed)
    staged = random_problem(random, whole=bool(seed % 2), no_time=no_time, shapes=FEW_ORDERS)
    require_listed_optimum(staged, brute_force_with_messages(staged))


def require_listed_optimum(staged: StagedProblem, optimum_s: float | None) -> None:
    found = new_search(staged)
    found.run(WIDE)
    assert found.is_settled()
    if optimum_s is None:
        assert found.order is None
        return
    assert found.makespan_s == pytest.approx(optimum_s, rel=ROUNDING)
    assert found.bound_s <= optimum_s * (1 + ROUNDING)


@pytest.mark.parametrize("limits", [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("seed", range(6))
def test_limits_in_flight_are_kept(seed: int, limits: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    staged = random_problem(random, whole=True, shapes=(((0, 1), 2, bool(seed % 2)),))
    limited = replace(staged, max_in_flight=np.array(limits))
    optimum_s = brute_force_with_messages(staged, lambda order: keeps(order, limits))
    require_listed_optimum(limited, optimum_s)
    for order, _ in evaluated(limited):
        assert keeps(order, limits)


@pytest.mark.parametrize("limits", [(1, 2), (2, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_limits_in_flight_count_a_rank_not_a_stage(seed: int, limits: tuple[int, ...]) -> None:
    """A rank of two stages holds a microbatch from its first F to its last B. No message waits, so ops alone decide."""
    times = np.random.default_rng(seed).integers(1, 5, (3, 3)).astype(float)
    staged = equal_sizes_problem(
        2, 2, np.inf, forward=times[0], backward_input=times[1], backward_weight=times[2], placement=(0, 1, 0)
    )
    limited = replace(staged, split_backward=False, max_in_flight=np.array(limits))
    require_listed_optimum(limited, brute_force(limited, lambda order: keeps(order, limits)))


def keeps(order: Order, limits: tuple[int, ...]) -> bool:
    """Count the microbatches on every rank op by op."""
    for ops, limit in zip(order.to_lists(), limits, strict=True):
        names = [m for _, _, m in ops]
        for now in range(len(names)):
            if len(set(names[: now + 1]) & set(names[now:])) > limit:
                return False
    return True


def evaluated(staged: StagedProblem) -> Iterator[tuple[Order, float]]:
    """Yield the orders that narrow and wide searches confirm."""
    taken: list[tuple[Order, float]] = []
    evaluate: Callable[[Order], float | None] = confirm(staged)

    def note(order: Order) -> float | None:
        makespan_s = evaluate(order)
        if makespan_s is not None:
            taken.append((order, makespan_s))
        return makespan_s

    found = SequenceSearch(staged, note)
    for width in (1, 4, WIDE):
        found.run(width)
    yield from taken
