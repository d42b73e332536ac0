"""The makespan of complete orders at given stage costs: enough to choose between two of them."""

from __future__ import annotations

from octoplan.baselines.schedule import Op, RankOrder, StageCosts


def makespan(orders: tuple[RankOrder, ...], placement: tuple[int, ...], costs: StageCosts) -> float:
    """Return when the last op of complete split orders ends, in seconds; links are never busy."""
    num_stages = len(placement)
    ends: dict[Op, float] = {}
    free, place = [0.0] * len(orders), [0] * len(orders)
    times = {"F": costs.forward_s, "I": costs.backward_input_s, "W": costs.backward_weight_s}
    waiting: dict[Op, int] = {}
    ready = list(range(len(orders)))
    while ready:
        rank = ready.pop()
        while place[rank] < len(orders[rank]):
            stage, kind, _ = op = orders[rank][place[rank]]
            source = _source(op, num_stages)
            if source is not None and source not in ends:
                waiting[source] = rank
                break
            arrival = 0.0 if source is None else ends[source]
            if source is not None and source[0] != stage:
                arrival += costs.transfer_s[min(source[0], stage)]
            ends[op] = free[rank] = max(arrival, free[rank]) + times[kind][stage]
            place[rank] += 1
            if op in waiting:
                ready.append(waiting.pop(op))
    return max(free)


def _source(op: Op, num_stages: int) -> Op | None:
    """The op on another stage, or the same, whose output an op needs."""
    stage, kind, m = op
    if kind == "F":
        return None if stage == 0 else (stage - 1, "F", m)
    if kind == "I":
        return (stage, "F", m) if stage == num_stages - 1 else (stage + 1, "I", m)
    return None
