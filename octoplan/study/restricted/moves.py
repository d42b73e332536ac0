"""Random steps in one dimension that leave the other two as they are.

* partition: boundaries shift; number, ranks and policy of the stages stay.
* placement: ranks swap or change, a stage is added or removed. Where the partition is not searched, the cuts are those
  of the uniform partition into the new number of stages; where it is, one stage is cut in two, or two become one.
* order: a number of the policy's rule, the bias of one stage, or whether a stage's backward is whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from octoplan.study.restricted.workbench import Workbench
from octoplan.tuner import Candidate
from octoplan.tuner.pricing_kernel import (
    ALTERNATE,
    BACKWARD_FIRST,
    FUSE,
    MEMORY_BONUS,
    URGENCY,
    WAIT_F,
    WAIT_I,
    WAIT_W,
    WEIGHT_DELAY,
)
from octoplan_solvers.list_scheduling.policy import FILL_BUBBLES_ONLY
from octoplan_solvers.ops import FloatArray, IntArray

#: Bonus of W that outweighs even `FILL_BUBBLES_ONLY`, while a forward waits for memory.
_MAKE_ROOM = 10 * FILL_BUBBLES_ONLY


def move_partition(candidate: Candidate, random: np.random.Generator) -> Candidate:
    """Shift one boundary, both of one stage, or two anywhere."""
    cuts = candidate.cuts.copy()
    inner = len(cuts) - 2
    if inner < 1:
        return candidate
    step = int(random.choice([-1, 1]))
    first = int(random.integers(1, inner + 1))
    draw = random.random()
    if draw < 0.4:
        cuts[first] += step * (1 if random.random() < 0.7 else 2)
    elif draw < 0.7 and first < inner:
        cuts[first : first + 2] += step
    else:
        cuts[first] += step
        cuts[int(random.integers(1, inner + 1))] += int(random.choice([-1, 1]))
    return replace(candidate, cuts=cuts)


def move_placement(
    bench: Workbench, candidate: Candidate, random: np.random.Generator, *, free_cuts: bool
) -> Candidate:
    """Swap or change ranks, or change the number of stages."""
    ranks = candidate.ranks.copy()
    count = len(ranks)
    one, other = (int(stage) for stage in random.integers(0, count, size=2))
    draw = random.random()
    if draw < 0.35:
        ranks[one], ranks[other] = ranks[other], ranks[one]
    elif draw < 0.65:
        ranks[one] = random.integers(bench.problem.num_ranks)
    elif draw < 0.85:
        return add_stage(bench, candidate, one, int(random.integers(bench.problem.num_ranks)), free_cuts)
    elif count > bench.problem.num_ranks:
        return _remove_stage(bench, candidate, one, free_cuts)
    return replace(candidate, ranks=ranks)


def move_order(candidate: Candidate, random: np.random.Generator) -> Candidate:
    """Change one number of the rule, or one stage's bias or kind of backward."""
    rule, delta = candidate.rule.copy(), candidate.delta.copy()
    stage = int(random.integers(len(delta)))
    draw = int(random.integers(10))
    if draw == 0:
        rule[URGENCY] += random.normal(0.0, 0.4)
    elif draw == 1:
        rule[BACKWARD_FIRST] += random.normal(0.0, 2.0)
    elif draw == 2:
        rule[WEIGHT_DELAY] = FILL_BUBBLES_ONLY if random.random() < 0.3 else random.normal(0.0, 4.0)
    elif draw == 3:
        rule[ALTERNATE] = random.choice([0.0, abs(random.normal(0.0, 1.5))])
        rule[MEMORY_BONUS] = random.choice([0.0, _MAKE_ROOM])
    elif draw == 4:
        which = int(random.choice([WAIT_F, WAIT_I, WAIT_W]))
        rule[which] = random.choice([0.0, random.random()])
    elif draw <= 6:
        delta[stage, int(random.integers(2))] += random.normal(0.0, 1.5)
    elif draw == 7:
        delta[stage, 2] = random.normal(0.0, 4.0)
    elif draw == 8:
        delta[stage, FUSE] = 1.0 - delta[stage, FUSE]
    else:
        delta[:, FUSE] = float(random.integers(2))
    return replace(candidate, rule=rule, delta=delta)


def add_stage(bench: Workbench, candidate: Candidate, stage: int, rank: int, free_cuts: bool) -> Candidate:
    """Put a stage on ``rank`` behind ``stage``; return the candidate itself if no layers are left for it."""
    count = len(candidate.ranks)
    if free_cuts:
        first, end = candidate.cuts[stage : stage + 2].tolist()
        if end - first < 2 or count >= bench.problem.num_ranks * bench.problem.max_stages_per_rank:
            return candidate
        cuts = np.insert(candidate.cuts, stage + 1, (first + end) // 2)
    elif count >= bench.most_uniform_stages():
        return candidate
    else:
        cuts = bench.uniform_cuts(count + 1)
    ranks: IntArray = np.insert(candidate.ranks, stage + 1, rank)
    delta: FloatArray = np.insert(candidate.delta, stage + 1, candidate.delta[stage], axis=0)
    return replace(candidate, cuts=cuts, ranks=ranks, delta=delta)


def _remove_stage(bench: Workbench, candidate: Candidate, stage: int, free_cuts: bool) -> Candidate:
    """Take a stage away; where cuts are free, a neighbour gets its layers."""
    count = len(candidate.ranks)
    cut = stage if stage > 0 else 1
    cuts = np.delete(candidate.cuts, cut) if free_cuts else bench.uniform_cuts(count - 1)
    ranks, delta = np.delete(candidate.ranks, stage), np.delete(candidate.delta, stage, axis=0)
    return replace(candidate, cuts=cuts, ranks=ranks, delta=delta)
