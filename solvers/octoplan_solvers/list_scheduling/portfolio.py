"""A portfolio of policies, and random moves from one policy to a neighbouring one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from octoplan_solvers.list_scheduling.policy import FILL_BUBBLES_ONLY, Policy, PolicyRule
from octoplan_solvers.list_scheduling.scheduler import ListScheduler
from octoplan_solvers.staged import StagedProblem

#: Rules that were best on some instance of a grid over loose and tight memory.
_RULES = tuple(
    PolicyRule(urgency, backward_first, weight_delay, alternate, 0.0, wait)
    for urgency, backward_first, weight_delay, alternate, wait in (
        (1.0, 50.0, FILL_BUBBLES_ONLY, 0.0, 0.3),
        (0.5, 0.0, 1.0, 1.5, 0.3),
        (0.0, 0.0, FILL_BUBBLES_ONLY, 0.0, 1.0),
        (1.0, 2.0, 0.0, 0.0, 1.0),
        (-1.0, 0.0, FILL_BUBBLES_ONLY, 0.0, 0.0),
        (0.0, 0.0, 1.0, 1.5, 1.0),
        (0.5, 2.0, FILL_BUBBLES_ONLY, 1.5, 0.3),
        (2.0, 0.0, FILL_BUBBLES_ONLY, 0.0, 0.3),
        (1.0, 0.0, FILL_BUBBLES_ONLY, 1.5, 0.3),
        (-0.5, 50.0, FILL_BUBBLES_ONLY, 0.0, 0.3),
        (0.0, 50.0, 0.0, 0.0, 0.0),
        (2.0, 2.0, 1.0, 0.0, 0.3),
    )
)


def portfolio(staged: StagedProblem) -> list[PolicyRule]:
    """Return the rules worth trying; each also with W giving way to memory where that can matter."""
    if not (staged.memory_is_limited and staged.split_backward):
        return list(_RULES)
    return [replace(rule, memory_bonus=bonus) for rule in _RULES for bonus in (0.0, 10 * FILL_BUBBLES_ONLY)]


def best_of_portfolio(
    scheduler: ListScheduler,
    give_up_s: float = float("inf"),
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[PolicyRule, float]:
    """Return the portfolio's best rule and its makespan in seconds, infinite if none is below ``give_up_s``.

    ``should_stop`` is asked after every rule.
    """
    rules = portfolio(scheduler.staged)
    best, makespan = rules[0], float("inf")
    for rule in rules:
        found = scheduler.makespan(rule.on(scheduler.staged), min(makespan, give_up_s))
        if found < makespan:
            best, makespan = rule, found
        if should_stop():
            break
    return best, makespan


def mutate(policy: Policy, random: np.random.Generator) -> Policy:
    """Return a neighbouring policy: another bias of one stage or one class, or another bonus or patience."""
    move = random.integers(6)
    if move <= 1:
        bias = policy.bias.copy()
        bias[random.integers(len(bias)), random.integers(2)] += random.normal(0.0, 1.0 if move else 3.0)
        return policy.with_bias(bias)
    if move == 2:
        bias = policy.bias.copy()
        bias[:, random.integers(2)] += random.normal(0.0, 1.0)
        return policy.with_bias(bias)
    if move == 3:
        bias = policy.bias.copy()
        stages = slice(None) if random.random() < 0.5 else random.integers(len(bias))
        bias[stages, 2] = FILL_BUBBLES_ONLY if random.random() < 0.3 else random.normal(0.0, 4.0)
        return policy.with_bias(bias)
    if move == 4:
        return replace(
            policy, alternate=max(0.0, float(random.choice([0.0, policy.alternate + random.normal()])))
        )
    wait = tuple(float(share) for share in random.choice([0.0, 0.0, 0.1, 0.3, 0.6, 1.0], size=3))
    return replace(policy, patience=(0.3 * wait[0], 0.3 * wait[1], wait[2]))


def improve_policy(
    scheduler: ListScheduler,
    *,
    evaluations: int,
    seed: int = 0,
    start: PolicyRule | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Policy, float]:
    """Search policies: random neighbours of the best so far, sideways moves allowed.

    Parameters
    ----------
    evaluations:
        Neighbours to try.
    seed:
        The same seed and number of evaluations give the same policy.
    start:
        Rule to start from; by default the portfolio's best.
    should_stop:
        Asked after every rule of the portfolio, and before every neighbour.

    Returns
    -------
    policy, makespan:
        The best policy met and its makespan in seconds.
    """
    random = np.random.default_rng(seed)
    best = (start or best_of_portfolio(scheduler, should_stop=should_stop)[0]).on(scheduler.staged)
    makespan = scheduler.makespan(best)
    for _ in range(evaluations):
        if should_stop():
            break
        neighbour = mutate(best, random)
        found = scheduler.makespan(neighbour, give_up_s=makespan)
        if found <= makespan:
            best, makespan = neighbour, found
    return best, makespan
