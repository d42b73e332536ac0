"""From the elite to one plan: exact orders for every member, then large neighbourhoods around the best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octoplan.ordering import OrderedPlan, confirm, order_by_policy, run_order
from octoplan.stopping import run_stoppable
from octoplan.tuner.budget import Budget
from octoplan.tuner.candidate import Candidate, Pricer
from octoplan.tuner.elite import Elite
from octoplan_solvers.order_search import improve_order, periodic_order

#: Where evaluations limit the search, large-neighbourhood search tries one window for so many of them.
_EVALUATIONS_PER_WINDOW = 500
#: Ops from which a window costs more time than it can be worth in seconds.
_MANY_OPS = 20_000
#: Microbatches from which a repeating order is looked for, too.
_MANY_MICROBATCHES = 128
#: Orders that the search for a repeating order still builds after it was asked to end.
_ORDERS_TO_END = 8


def finish(
    pricer: Pricer, elite: Elite, budget: Budget, *, seed: int, good_enough_s: float
) -> OrderedPlan | None:
    """Return the best plan that fits, or None.

    Parameters
    ----------
    good_enough_s:
        A plan no longer than this is not improved any more.
    """
    budget.phase = "finish"
    fitting: list[OrderedPlan] = []
    for position, member in enumerate(elite.members):
        # The best one is always turned into a plan: that is what the time went into.
        if position > 0 and (fitting or pricer.known) and budget.is_late(1.0):
            break
        plans = _orders(pricer, member, budget, seed)
        fitting += [plan for plan in plans if not plan.excess_bytes().any()]
    fitting += pricer.known
    if not fitting:
        return None
    best = min(fitting, key=lambda plan: plan.makespan_s)
    return best if best.makespan_s <= good_enough_s else _improve(pricer, best, budget, seed)


def _orders(pricer: Pricer, member: Candidate, budget: Budget, seed: int) -> Iterator[OrderedPlan]:
    """Yield the order of a member's own policy and, for many microbatches, a periodic one."""
    scheduler = pricer.scheduler(member.assignment)
    if scheduler is None:
        return
    began = budget.elapsed_s
    yield order_by_policy(scheduler, pricer.policy(member, scheduler))
    is_long = scheduler.staged.num_microbatches >= _MANY_MICROBATCHES
    if not is_long or pricer.problem.constraints.max_in_flight:
        return
    until = _periodic_until(budget, budget.elapsed_s - began)
    if budget.is_late(until):
        return
    staged = scheduler.staged
    found = run_stoppable(
        lambda stop: periodic_order(staged, confirm(staged), seed=seed, stop=stop),
        lambda: budget.is_late(until),
    )
    if found.order is not None:
        yield from pricer.allowed_orders(run_order(staged, found.order))


def _periodic_until(budget: Budget, order_s: float) -> float:
    """Return the share of the seconds at which a periodic order must be asked to end.

    Half of what is left, less what it takes to end, which is a few times the seconds of one order.
    """
    left_s = budget.seconds - budget.elapsed_s
    ends_s = budget.elapsed_s + min(left_s / 2, left_s - _ORDERS_TO_END * order_s)
    return ends_s / budget.seconds if budget.seconds > 0 else 0.0


def _improve(pricer: Pricer, best: OrderedPlan, budget: Budget, seed: int) -> OrderedPlan:
    """Spend what is left on windows of the order, solved by CP-SAT."""
    staged, order = best.staged, best.replay.schedule.order
    left = budget.seconds - budget.elapsed_s
    if len(order.ops) > _MANY_OPS or pricer.problem.constraints.max_in_flight or budget.should_stop():
        return best
    if budget.max_evaluations is not None:
        windows = budget.max_evaluations // _EVALUATIONS_PER_WINDOW
        if windows == 0:
            return best
        effort: dict[str, Any] = {"iterations": windows}
    elif left > 0:
        effort = {"time_limit_s": left, "num_workers": 2}
    else:
        return best
    found = run_stoppable(
        lambda stop: improve_order(staged, order, pricer.confirm(staged), seed=seed, stop=stop, **effort),
        budget.should_stop,
    )
    better = found.order is not None and found.objective_s is not None and found.objective_s < best.makespan_s
    return run_order(staged, found.order) if better and found.order is not None else best
