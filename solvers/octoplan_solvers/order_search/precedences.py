"""Which ops of a window come before which, whatever the model decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from octoplan_solvers.ops import FORWARD
from octoplan_solvers.order_search.integer_times import RankMemory
from octoplan_solvers.order_search.variables import Variables, inputs_of, producer
from octoplan_solvers.order_search.window import INSIDE, Op
from octoplan_solvers.staged import StagedProblem


def precedences(variables: Variables, *, any_names: bool) -> list[tuple[Op, Op]]:
    """Return pairs of which the second starts when the first has ended, or later.

    Parameters
    ----------
    any_names:
        Microbatches may overtake each other; else each stage runs them in order
        (`octoplan_solvers.order_search.window.sort_by_microbatch`).
    """
    pairs = [*_data(variables), *_fixed_sequences(variables)]
    if any_names:
        pairs += _first_stage_in_order(variables)
    else:
        pairs += [*_microbatches_in_order(variables), *_free_before_next(variables)]
    return pairs


def _data(variables: Variables) -> Iterator[tuple[Op, Op]]:
    staged = variables.window.staged
    for op in variables.start:
        stage, kind, microbatch = op
        own = stage, kind - 1, microbatch
        if kind > 0 and own in variables.start:
            yield own, op
        for message in inputs_of(staged, op):
            if producer(staged, message) in variables.start:
                yield producer(staged, message), op


def _fixed_sequences(variables: Variables) -> Iterator[tuple[Op, Op]]:
    """What is not free keeps its order."""
    window = variables.window
    for ops in window.ops:
        present = [op for op in ops if not (op[1] == 2 and window.is_fused[op[0], op[2]])]
        yield from pairwise(op for op in present if not window.is_free[op])


def _first_stage_in_order(variables: Variables) -> Iterator[tuple[Op, Op]]:
    """Names of microbatches say nothing, so let the first stage's forwards give them.

    To order all stages would be wrong if ops must start as early as they can: `sort_by_microbatch` keeps a schedule's
    times, but then some ops may wait longer than they must.
    """
    for microbatch in range(1, variables.window.staged.num_microbatches):
        yield (0, 0, microbatch - 1), (0, 0, microbatch)


def _microbatches_in_order(variables: Variables) -> Iterator[tuple[Op, Op]]:
    """Each kind of op on its own; of W's only those that exist in any case."""
    for op in variables.start:
        stage, kind, microbatch = op
        before = stage, kind, microbatch - 1
        if before in variables.start and not (kind == 2 and _has_choice(variables, before, op)):
            yield before, op


def _has_choice(variables: Variables, *ops: Op) -> bool:
    return any((stage, microbatch) in variables.fused for stage, _, microbatch in ops)


def _free_before_next(variables: Variables) -> Iterator[tuple[Op, Op]]:
    """F of microbatch m + k follows what frees m, if k + 1 microbatches of this stage alone are too many."""
    window = variables.window
    for stage, rank in enumerate(window.staged.stage_rank.tolist()):
        fused = window.is_fused[stage]
        if not np.isfinite(window.staged.memory_limit_bytes[rank]):
            continue
        if window.may_choose[stage].any() or fused.any() != fused.all():
            continue  # what is freed next need not be the oldest
        most = most_in_flight(window.staged, stage, RankMemory.of(window.staged, rank))
        for microbatch in np.flatnonzero(window.place[stage, 0] == INSIDE).tolist():
            freeing = stage, 1 if fused.all() else 2, microbatch - most
            if freeing in variables.start:
                yield freeing, (stage, 0, microbatch)


def most_in_flight(staged: StagedProblem, stage: int, memory: RankMemory) -> int:
    """Return how many microbatches a stage can hold when it starts an F, if no other stage holds any."""
    activation = memory.units(float(staged.activation_bytes[stage]))
    workspace = float(staged.workspace_bytes[stage]) if staged.duration_s[stage, FORWARD] > 0 else 0.0
    room = memory.capacity - memory.units(workspace) - activation
    least = activation
    if staged.split_backward:
        after_input = staged.activation_bytes[stage] - staged.freed_at_input_bytes[stage]
        least = min(activation, memory.units(float(after_input + staged.stash_bytes[stage])))
    if least <= 0 or room < 0:
        return staged.num_microbatches
    return 1 + room // least


def all_that_follows(ops: Iterable[Op], pairs: list[tuple[Op, Op]]) -> dict[Op, set[Op]]:
    """Return the transitive closure: for every op, those that come after it."""
    followers: dict[Op, list[Op]] = defaultdict(list)
    waits: dict[Op, int] = dict.fromkeys(ops, 0)
    for before, after in pairs:
        followers[before].append(after)
        waits[after] += 1
    sequence = [op for op, count in waits.items() if count == 0]
    for op in sequence:  # grows while it is walked through
        for after in followers[op]:
            waits[after] -= 1
            if waits[after] == 0:
                sequence.append(after)
    closure: dict[Op, set[Op]] = {}
    for op in reversed(sequence):
        closure[op] = set(followers[op]).union(*(closure[after] for after in followers[op]))
    return closure
