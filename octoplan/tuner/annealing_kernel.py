"""Compiled simulated annealing over partition, placement and policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan.tuner.pricing_kernel import (
    ALTERNATE,
    BACKWARD_FIRST,
    DELTA_SIZE,
    FUSE,
    MEMORY_BONUS,
    URGENCY,
    WAIT_F,
    WAIT_I,
    WAIT_W,
    WEIGHT_DELAY,
    price_kernel,
)
from octoplan_solvers.compiled import kernel

#: Bias of a W that only fills bubbles (`octoplan_solvers.list_scheduling.policy.FILL_BUBBLES_ONLY`).
_FILL_BUBBLES_ONLY = 1e6


@kernel
def is_allowed(arrays: Any, cuts: Any, ranks: Any, num_stages: int) -> bool:
    """Decide whether an assignment keeps the limits on stages per rank and the declarative constraints."""
    counts = np.zeros(arrays.num_ranks, np.int64)
    for stage in range(num_stages):
        if cuts[stage + 1] <= cuts[stage]:
            return False
        counts[ranks[stage]] += 1
        if stage > 0 and arrays.no_cut[cuts[stage]]:
            return False
        for layer in range(cuts[stage], cuts[stage + 1]):
            if not arrays.may_run[layer, ranks[stage]]:
                return False
            if layer > cuts[stage] and arrays.must_cut[layer]:
                return False
    if counts.min() < max(arrays.min_stages_per_rank, 1) or counts.max() > arrays.max_stages_per_rank:
        return False
    if arrays.equal_stages and counts.min() != counts.max():
        return False
    for relation in range(len(arrays.rank_relations)):
        one, other = -1, -1
        for stage in range(num_stages):
            if cuts[stage] <= arrays.rank_relations[relation, 0] < cuts[stage + 1]:
                one = ranks[stage]
            if cuts[stage] <= arrays.rank_relations[relation, 1] < cuts[stage + 1]:
                other = ranks[stage]
        if (one == other) != (arrays.rank_relations[relation, 2] == 1):
            return False
    return True


@kernel
def move_partition(cuts: Any, num_stages: int) -> None:
    """Shift one boundary, both of a stage, a run of them, or two anywhere, in place."""
    if num_stages < 2:
        return
    draw = np.random.random()
    first = np.random.randint(1, num_stages)
    if draw < 0.35:
        step = 1 if np.random.random() < 0.7 else 2
        cuts[first] += step if np.random.random() < 0.5 else -step
    elif draw < 0.6 and num_stages > 2:
        # Slide one stage along the chain: the stages around it trade layers through it.
        first = np.random.randint(1, num_stages - 1)
        step = 1 if np.random.random() < 0.5 else -1
        cuts[first] += step
        cuts[first + 1] += step
    elif draw < 0.75:
        last = np.random.randint(1, num_stages)
        if last < first:
            first, last = last, first
        step = 1 if np.random.random() < 0.5 else -1
        for index in range(first, last + 1):
            cuts[index] += step
    else:
        second = np.random.randint(1, num_stages)
        cuts[first] += 1 if np.random.random() < 0.5 else -1
        cuts[second] += 1 if np.random.random() < 0.5 else -1


@kernel
def move_placement(cuts: Any, ranks: Any, delta: Any, num_stages: int, num_ranks: int) -> int:
    """Swap or change ranks, split or merge stages, in place; return the number of stages."""
    draw = np.random.random()
    if draw < 0.3:
        one, other = np.random.randint(num_stages), np.random.randint(num_stages)
        ranks[one], ranks[other] = ranks[other], ranks[one]
        return num_stages
    if draw < 0.45:
        ranks[np.random.randint(num_stages)] = np.random.randint(num_ranks)
        return num_stages
    if draw < 0.6:
        # Move a boundary stage's neighbour: exchange two adjacent stages' ranks.
        if num_stages > 1:
            stage = np.random.randint(num_stages - 1)
            ranks[stage], ranks[stage + 1] = ranks[stage + 1], ranks[stage]
        return num_stages
    if draw < 0.8:
        stage = np.random.randint(num_stages)
        if num_stages == len(ranks) or cuts[stage + 1] - cuts[stage] < 2:
            return num_stages
        cut = np.random.randint(cuts[stage] + 1, cuts[stage + 1])
        for index in range(num_stages, stage, -1):
            cuts[index + 1] = cuts[index]
            if index > stage + 1:
                ranks[index] = ranks[index - 1]
                delta[index] = delta[index - 1]
        cuts[stage + 1] = cut
        ranks[stage + 1] = ranks[stage]
        delta[stage + 1] = delta[stage]
        ranks[stage + (1 if np.random.random() < 0.5 else 0)] = np.random.randint(num_ranks)
        return num_stages + 1
    if num_stages <= num_ranks:
        return num_stages
    stage = np.random.randint(num_stages - 1)
    if np.random.random() < 0.5:
        ranks[stage] = ranks[stage + 1]
    for index in range(stage + 1, num_stages):
        cuts[index] = cuts[index + 1]
        if index + 1 < num_stages:
            ranks[index] = ranks[index + 1]
            delta[index] = delta[index + 1]
    return num_stages - 1


@kernel
def move_policy(rule: Any, delta: Any, num_stages: int) -> None:
    """Change one number of the rule, or the bias of one stage, in place."""
    draw = np.random.randint(14)
    if draw == 0:
        rule[URGENCY] += np.random.normal(0.0, 0.4)
    elif draw == 1:
        rule[BACKWARD_FIRST] += np.random.normal(0.0, 2.0)
    elif draw == 2:
        rule[WEIGHT_DELAY] = _FILL_BUBBLES_ONLY if np.random.random() < 0.3 else np.random.normal(0.0, 4.0)
    elif draw == 3:
        rule[ALTERNATE] = 0.0 if np.random.random() < 0.3 else abs(np.random.normal(0.0, 1.5))
    elif draw == 4:
        choice = np.random.random()
        rule[MEMORY_BONUS] = (
            0.0 if choice < 0.4 else (10 * _FILL_BUBBLES_ONLY if choice < 0.8 else 10 * choice)
        )
    elif draw == 5:
        rule[WAIT_W] = 0.0 if np.random.random() < 0.3 else np.random.random()
    elif draw == 6:
        which = WAIT_F if np.random.random() < 0.5 else WAIT_I
        rule[which] = 0.0 if np.random.random() < 0.6 else 0.5 * np.random.random()
    elif draw <= 9:
        delta[np.random.randint(num_stages), np.random.randint(2)] += np.random.normal(0.0, 1.5)
    elif draw == 10:
        delta[np.random.randint(num_stages), 2] = np.random.normal(0.0, 4.0)
    elif draw == 11:
        delta[np.random.randint(num_stages), :] = 0.0
    elif draw == 12:
        stage = np.random.randint(num_stages)
        delta[stage, FUSE] = 1.0 - delta[stage, FUSE]
    else:
        delta[:, FUSE] = 0.0 if np.random.random() < 0.7 else 1.0


@kernel
def anneal_kernel(
    arrays: Any,
    start_cuts: Any,
    start_ranks: Any,
    start_rule: Any,
    start_delta: Any,
    start_makespan: float,
    evaluations: int,
    hot: float,
    cold: float,
    policy_share: float,
    partition_share: float,
    seed: int,
) -> Any:
    """Walk for a number of evaluations from ``start``; return where it ended and the best candidate met.

    A neighbour that is longer by a share x of the makespan is taken with probability ``exp(-x / temperature)``;
    the temperature falls from ``hot`` to ``cold``.

    Returns
    -------
    current, best:
        ``(cuts, ranks, rule, delta, makespan)`` each.
    counts:
        ``(3, 3)`` for policy, partition and placement moves: proposed, taken, improved the best.
    """
    np.random.seed(seed)
    capacity = min(arrays.num_ranks * arrays.max_stages_per_rank, len(arrays.no_cut))
    num_stages = len(start_ranks)
    cuts = np.zeros(capacity + 1, np.int64)
    cuts[: num_stages + 1] = start_cuts
    ranks = np.zeros(capacity, np.int64)
    ranks[:num_stages] = start_ranks
    delta = np.zeros((capacity, DELTA_SIZE))
    delta[:num_stages] = start_delta
    rule = start_rule.copy()
    makespan = start_makespan
    best_cuts, best_ranks, best_rule, best_delta = cuts.copy(), ranks.copy(), rule.copy(), delta.copy()
    best_stages, best_makespan = num_stages, makespan
    counts = np.zeros((3, 3), np.int64)
    done = 0
    attempts = 0
    while done < evaluations and attempts < 50 * evaluations:
        attempts += 1
        new_cuts, new_ranks, new_rule, new_delta = cuts.copy(), ranks.copy(), rule.copy(), delta.copy()
        new_stages = num_stages
        draw = np.random.random()
        if draw < policy_share:
            dimension = 0
            move_policy(new_rule, new_delta, num_stages)
        elif draw < policy_share + partition_share:
            dimension = 1
            move_partition(new_cuts, num_stages)
        else:
            dimension = 2
            new_stages = move_placement(new_cuts, new_ranks, new_delta, num_stages, arrays.num_ranks)
            if np.random.random() < 0.5:
                move_partition(new_cuts, new_stages)
        if dimension > 0 and not is_allowed(arrays, new_cuts, new_ranks, new_stages):
            continue
        temperature = hot * (cold / hot) ** (done / evaluations)
        allowed = makespan * (1.0 - temperature * np.log(1.0 - np.random.random()))
        done += 1
        counts[dimension, 0] += 1
        found = price_kernel(
            arrays,
            new_cuts[: new_stages + 1],
            new_ranks[:new_stages],
            new_rule,
            new_delta[:new_stages],
            allowed,
        )
        if found <= allowed:
            counts[dimension, 1] += 1
            cuts, ranks, rule, delta = new_cuts, new_ranks, new_rule, new_delta
            num_stages, makespan = new_stages, found
            if makespan < best_makespan:
                counts[dimension, 2] += 1
                best_cuts, best_ranks, best_rule, best_delta = (
                    cuts.copy(),
                    ranks.copy(),
                    rule.copy(),
                    delta.copy(),
                )
                best_stages, best_makespan = num_stages, makespan
    current = (cuts[: num_stages + 1], ranks[:num_stages], rule, delta[:num_stages], makespan)
    best = (
        best_cuts[: best_stages + 1],
        best_ranks[:best_stages],
        best_rule,
        best_delta[:best_stages],
        best_makespan,
    )
    return current, best, counts
