"""From the elite to one plan: exact orders for every member, then large neighbourhoods around the best."""

from __future__ import annotations

from collections.abc import Iterator

from octoplan.ordering import OrderedPlan, confirm, order_by_policy, run_order
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


def finish(
    pricer: Pricer, elite: Elite, budget: Budget, *, seed: int, good_enough_s: float
) -> OrderedPlan | None:
    """Return the best plan that fits, or None.

    Parameters
    ----------
    good_enough_s:
        A plan no longer than this is not improved any more.
    """
    plans = [plan for member in elite.members for plan in _orders(pricer, member, seed)]
    fitting = [plan for plan in plans if not plan.excess_bytes().any()]
    if not fitting:
        return None
    best = min(fitting, key=lambda plan: plan.makespan_s)
    return best if best.makespan_s <= good_enough_s else _improve(pricer, best, budget, seed)


def _orders(pricer: Pricer, member: Candidate, seed: int) -> Iterator[OrderedPlan]:
    """Yield the order of a member's own policy and, for many microbatches, a periodic one."""
    scheduler = pricer.scheduler(member.assignment)
    if scheduler is None:
        return
    yield order_by_policy(scheduler, member.policy(scheduler))
    if (
        scheduler.staged.num_microbatches >= _MANY_MICROBATCHES
        and not pricer.problem.constraints.max_in_flight
    ):
        staged = scheduler.staged
        found = periodic_order(staged, confirm(staged), seed=seed)
        if found.order is not None:
            yield run_order(staged, found.order)


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
        found = improve_order(staged, order, confirm(staged), iterations=windows, seed=seed)
    elif left > 0:
        found = improve_order(staged, order, confirm(staged), time_limit_s=left, seed=seed, num_workers=2)
    else:
        return best
    better = found.order is not None and found.objective_s is not None and found.objective_s < best.makespan_s
    return run_order(staged, found.order) if better and found.order is not None else best
