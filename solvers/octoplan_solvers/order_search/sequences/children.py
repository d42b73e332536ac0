"""What may come next in a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from octoplan_solvers.compiled import kernel
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS
from octoplan_solvers.order_search.sequences.canonical import compare
from octoplan_solvers.order_search.sequences.node import held_bytes, ready_time


@kernel
def list_children(a: Any, done: Any, times: Any, codes: Any, starts: Any) -> Any:
    """Write codes and starts of what may come next; return its number and the earliest start of anything to come.

    Strictly read, every op and message that is ready, of microbatches that are alike the first one; not what has been
    passed over (it would start before what came last). Otherwise microbatches come in order, and what starts after
    something else could be over is left out (`_keep_early`).
    """
    safe = np.empty(2)
    safe[0] = safe[1] = np.inf
    count = _list_messages(a, done, times, codes, starts, safe)
    for stage in range(len(a.stages)):
        count = _list_ops(a, done, times, stage, codes, starts, count, safe)
    earliest = np.inf
    for index in range(count):
        earliest = min(earliest, starts[index])
    if not a.strict:
        count = _keep_early(codes, starts, count, safe)
    return count, earliest


@kernel
def _list_messages(a: Any, done: Any, times: Any, codes: Any, starts: Any, safe: Any) -> int:
    arrivals, sent = len(a.ranks) + a.num_pairs, 3 * len(a.stages) * a.num_microbatches
    count = 0
    for edge in range(len(a.edges)):
        if not a.edges[edge].is_decision:
            continue
        for m in range(a.num_microbatches):
            message = edge * a.num_microbatches + m
            if done[sent + message] or not done[a.edges[edge].maker * a.num_microbatches + m]:
                continue
            if a.strict and m > 0 and compare(a, done, times, m - 1, m) == 0:
                continue
            start = max(times[arrivals + message], times[len(a.ranks) + a.edges[edge].pair])
            if start >= 0.0:
                codes[count], starts[count] = -1 - message, start
                count += 1
                _note_safe(safe, start, start + a.edges[edge].busy)
            if not a.strict:
                break
    return count


@kernel
def _list_ops(
    a: Any, done: Any, times: Any, stage: int, codes: Any, starts: Any, count: int, safe: Any
) -> int:
    """Add the ops of a stage; of those in order only the next one of each kind."""
    rank = a.stages[stage].rank
    room = np.inf
    if a.ranks[rank].room < np.inf:
        room = a.ranks[rank].room - held_bytes(a, done, rank) - a.stages[stage].workspace
    num_stages, number = len(a.stages), a.num_microbatches
    weight_seen = backward_seen = forward_seen = False
    for m in range(number):
        if done[(2 * num_stages + stage) * number + m]:
            continue
        if a.strict and m > 0 and compare(a, done, times, m - 1, m) == 0:
            continue
        code = (stage * number + m) * NUM_KINDS
        if done[(num_stages + stage) * number + m]:
            if a.strict or not weight_seen:
                count = _add_weight(a, times, stage, code, room, codes, starts, count, safe)
            weight_seen = True
        elif done[stage * number + m]:
            if a.strict or not backward_seen:
                start = ready_time(a, done, times, num_stages + stage, m)
                if 0.0 <= start < np.inf:
                    count = _add_backward(a, stage, code, start, room, codes, starts, count, safe)
            backward_seen = True
        elif a.strict or not forward_seen:
            start = ready_time(a, done, times, stage, m)
            if 0.0 <= start < np.inf and _may_take_in(a, done, stage):
                count = _add_forward(a, stage, code, start, room, codes, starts, count, safe)
            forward_seen = True
    return count


@kernel
def _add_weight(
    a: Any, times: Any, stage: int, code: int, room: float, codes: Any, starts: Any, count: int, safe: Any
) -> int:
    start, length = times[a.stages[stage].rank], a.duration[stage, BACKWARD_WEIGHT]
    if start < 0.0 or (room < 0.0 and length > 0.0):
        return count
    codes[count], starts[count] = code + BACKWARD_WEIGHT, start
    _note_safe(safe, start, start + length)
    return count + 1


@kernel
def _add_backward(
    a: Any, stage: int, code: int, start: float, room: float, codes: Any, starts: Any, count: int, safe: Any
) -> int:
    """Add I, B, or both. Whichever a plan has may be moved forward only if both may, and frees memory at its end."""
    end = 0.0
    for kind in (BACKWARD_INPUT, BACKWARD):
        if not (a.stages[stage].may_split if kind == BACKWARD_INPUT else a.stages[stage].may_fuse):
            continue
        length = a.duration[stage, kind]
        if room < 0.0 and length > 0.0:
            end = np.inf
            continue
        codes[count], starts[count] = code + kind, start
        count += 1
        end = max(end, start + length)
    takes_memory = (
        a.stages[stage].may_split
        and a.stages[stage].stash > a.stages[stage].freed
        and a.ranks[a.stages[stage].rank].room < np.inf
    )
    _note_safe(safe, start, np.inf if takes_memory else end)
    return count


@kernel
def _add_forward(
    a: Any, stage: int, code: int, start: float, room: float, codes: Any, starts: Any, count: int, safe: Any
) -> int:
    rank, length = a.stages[stage].rank, a.duration[stage, FORWARD]
    if room < a.stages[stage].activation and length > 0.0:
        return count
    codes[count], starts[count] = code + FORWARD, start
    is_limited = a.ranks[rank].in_flight < a.num_microbatches
    if not is_limited and (a.ranks[rank].room == np.inf or a.stages[stage].activation == 0.0):
        _note_safe(safe, start, start + length)
    return count + 1


@kernel
def _may_take_in(a: Any, done: Any, stage: int) -> bool:
    """Whether a rank may start one more microbatch. In order, only by counts: names may differ from stage to stage."""
    rank, count = a.stages[stage].rank, a.num_microbatches
    if a.ranks[rank].first_stage != stage or a.ranks[rank].in_flight >= count:
        return True
    num_stages = len(a.stages)
    started = finished = 0
    fewest = count
    for m in range(count):
        started += done[stage * count + m]
        is_finished = True
        for other in range(num_stages):
            if a.stages[other].rank == rank and not done[(2 * num_stages + other) * count + m]:
                is_finished = False
        finished += is_finished
    if a.strict:
        return bool(started - finished < a.ranks[rank].in_flight)
    for other in range(num_stages):
        if a.stages[other].rank == rank:
            own = 0
            for m in range(count):
                own += done[(2 * num_stages + other) * count + m]
            fewest = min(fewest, own)
    return bool(started - fewest < a.ranks[rank].in_flight)


@kernel
def _note_safe(safe: Any, start: float, end: float) -> None:
    """Keep start and end of what is over first among all that may always be moved forward."""
    if end < safe[1]:
        safe[0], safe[1] = start, end


@kernel
def _keep_early(codes: Any, starts: Any, count: int, safe: Any) -> int:
    """Drop what starts when something else could be over already.

    That something would then come later, and might as well come now: its rank or pair idles till then, and it takes no
    memory from anything else. So a sequence that is no longer has it first.
    """
    kept = 0
    for index in range(count):
        if starts[index] < safe[1] or starts[index] <= safe[0]:
            codes[kept], starts[kept] = codes[index], starts[index]
            kept += 1
    return kept
