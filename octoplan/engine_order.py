"""Orders as torch's engine runs them, whatever the plan says: the first stage's backward is one op.

There an I does nothing on the first stage, whose input needs no gradient, and the W does the whole backward. A plan
that is to be priced under that engine's own order has a B in their place. Nothing waits for it, so where the W stood
it is as good as it can be for time; where the I stood it frees the received gradient and the activations sooner.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from octoplan.ordering import OrderedPlan, run_order
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.window import sort_by_microbatch
from octoplan_solvers.staged import StagedProblem


def as_torch_runs(plan: OrderedPlan) -> OrderedPlan | None:
    """Return the plan that torch's engine makes of this one: the shortest that fits, or None if none does."""
    fitting = [one for one in torch_orders(plan) if not one.excess_bytes().any()]
    return min(fitting, key=lambda one: one.makespan_s, default=None)


def torch_orders(plan: OrderedPlan) -> list[OrderedPlan]:
    """Return the plan with a B in place of the first stage's W, or of its I; the plan itself if it has neither."""
    staged, order = plan.staged, plan.replay.schedule.order
    if torch_runs_as_planned(order, staged):
        return [plan]
    if not last_forwards_are_in_order(order, staged.num_stages):
        order = sort_by_microbatch(order)
    if first_stage_is_fused(order):
        return [run_order(staged, order)]
    return [run_order(staged, fuse_first_stage(order, at)) for at in (BACKWARD_WEIGHT, BACKWARD_INPUT)]


def torch_runs_as_planned(order: Order, staged: StagedProblem) -> bool:
    """True if torch's engine runs an order word by word, as it is priced."""
    return first_stage_is_fused(order) and last_forwards_are_in_order(order, staged.num_stages)


def first_stage_is_fused(order: Order) -> bool:
    """True if the first stage has no I."""
    return not (order.ops // NUM_KINDS < order.num_microbatches)[
        order.ops % NUM_KINDS == BACKWARD_INPUT
    ].any()


def last_forwards_are_in_order(order: Order, num_stages: int) -> bool:
    """True if the last stage runs its forwards by microbatch: torch files losses in the order in which they come."""
    first = (num_stages - 1) * order.num_microbatches
    slots = (order.ops // NUM_KINDS)[order.ops % NUM_KINDS == FORWARD]
    return bool((np.diff(slots[slots >= first]) > 0).all())


def fuse_first_stage(order: Order, at: int) -> Order:
    """Return the order with one B for every I and W of the first stage, where the op of kind ``at`` stood."""
    is_first = order.ops // NUM_KINDS < order.num_microbatches
    kind = order.ops % NUM_KINDS
    dropped = BACKWARD_INPUT if at == BACKWARD_WEIGHT else BACKWARD_WEIGHT
    keep = ~(is_first & (kind == dropped))
    codes: IntArray = np.where(is_first & (kind == at), order.ops - at + BACKWARD, order.ops)
    begin = np.concatenate([[0], np.cumsum(keep)])[order.rank_begin]
    return Order(codes[keep], begin.astype(np.int64), order.num_microbatches)


def only_fused_first_stage(evaluate: Callable[[Order], float | None]) -> Callable[[Order], float | None]:
    """Return a pricing of orders that refuses those with an I on the first stage."""
    return lambda order: evaluate(order) if first_stage_is_fused(order) else None
