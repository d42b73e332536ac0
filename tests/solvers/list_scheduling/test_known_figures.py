"""List scheduling against optima proved elsewhere and a released plan."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from octoplan.ordering import order_by_policy
from octoplan_solvers.list_scheduling import ListScheduler, best_of_portfolio, improve_policy
from tests.solvers.list_scheduling.problems import TIGHT_MEMORY, chain, nemotron_of_octopipe


@pytest.mark.parametrize(("forward_s", "weight_s", "room", "optimum_s"), TIGHT_MEMORY)
def test_tight_memory(
    forward_s: Sequence[float], weight_s: Sequence[float], room: int, optimum_s: float
) -> None:
    """The portfolio alone is within 10% of the optimum, a search never below it."""
    ranks = range(len(forward_s))
    scheduler = ListScheduler(chain(forward_s, weight_s, ranks, 16, latency_s=0.1, room=room))
    rule, makespan = best_of_portfolio(scheduler)
    ordered = order_by_policy(scheduler, rule.on(scheduler.staged))
    assert not ordered.excess_bytes().any()
    assert ordered.makespan_s == pytest.approx(makespan)
    assert optimum_s - 1e-6 <= makespan <= 1.1 * optimum_s
    policy, improved = improve_policy(scheduler, evaluations=500)
    assert optimum_s - 1e-6 <= improved <= makespan
    assert order_by_policy(scheduler, policy).makespan_s == pytest.approx(improved)


def test_partition_and_placement_of_octopipe_for_nemotron() -> None:
    """Their order takes 898.70 ms; no rank can be done before its work of 863.25 ms."""
    scheduler = ListScheduler(nemotron_of_octopipe())
    policy, makespan = improve_policy(scheduler, evaluations=500)
    ordered = order_by_policy(scheduler, policy)
    assert ordered.simulation.busy_s.sum() / 4 == pytest.approx(851.3, abs=0.05)
    assert ordered.simulation.busy_s.max() <= makespan <= 898.70
    assert ordered.makespan_s == pytest.approx(makespan)
