"""Timelines to draw: a small greedy pipeline, computed without the project's simulator."""

from __future__ import annotations

from octoplan.report import MemoryCurve, Timeline, TimelineOp, TimelineTransfer

GIB = float(2**30)
_SECONDS = {"F": 0.010, "I": 0.011, "W": 0.009, "B": 0.020}


def pipeline_timeline(
    num_ranks: int = 4,
    num_microbatches: int = 16,
    *,
    stages_per_rank: int = 1,
    split: bool = True,
    limit_bytes: float | None = 80 * GIB,
    latency_s: float = 0.0005,
) -> Timeline:
    """Return a timeline of looped stages of unequal length; with one stage per rank the order is 1F1B."""
    num_stages = num_ranks * stages_per_rank
    ops, transfers = _execute(num_ranks, num_stages, num_microbatches, split, latency_s)
    makespan = max(op.end_s for op in ops)
    busy = sum(op.end_s - op.start_s for op in ops)
    return Timeline(
        title=f"9B hybrid model on {num_ranks} x H800, {'split' if split else 'fused'} backward",
        num_ranks=num_ranks,
        makespan_s=makespan,
        bubble_fraction=1 - busy / (num_ranks * makespan),
        ops=tuple(ops),
        transfers=tuple(transfers),
        memory=tuple(_memory_curve(ops, rank, num_stages, limit_bytes) for rank in range(num_ranks)),
        stage_labels=tuple(
            f"stage {s}: layers {7 * s}-{7 * s + 6} on rank {s % num_ranks}" for s in range(num_stages)
        ),
        rank_labels=tuple(f"rank {rank} (n{rank // 8}g{rank % 8})" for rank in range(num_ranks)),
    )


def _execute(
    num_ranks: int, num_stages: int, num_microbatches: int, split: bool, latency_s: float
) -> tuple[list[TimelineOp], list[TimelineTransfer]]:
    """Run whatever is ready: backwards first, then forwards (as many in flight as stages follow), then W."""
    done = {(kind, stage): 0 for kind in "FIWB" for stage in range(num_stages)}
    ends: dict[tuple[str, int, int], float] = {}
    ops: list[TimelineOp] = []
    transfers: list[TimelineTransfer] = []
    clock = [0.0] * num_ranks
    back = "I" if split else "B"

    def candidate(kind: str, stage: int) -> tuple[float, int, int] | None:
        """Return the start and the source stage of the stage's next op of a kind, if it can run."""
        m = done[kind, stage]
        freed = done["W" if split else "B", stage]
        if m == num_microbatches or (kind == "F" and m - freed >= num_stages - stage):
            return None
        own = {"F": None, "I": ("F", stage, m), "B": ("F", stage, m), "W": ("I", stage, m)}[kind]
        if own is not None and own not in ends:
            return None
        source = {"F": stage - 1, back: stage + 1}.get(kind, -1)
        start = clock[stage % num_ranks]
        if 0 <= source < num_stages:
            if (kind, source, m) not in ends:
                return None
            remote = latency_s if source % num_ranks != stage % num_ranks else 0.0
            start = max(start, ends[kind, source, m] + remote)
        return start, source, m

    while len(ops) < num_stages * num_microbatches * (3 if split else 2):
        choices = []
        for order, kind in enumerate((back, "F", "W") if split else (back, "F")):
            for stage in range(num_stages):
                found = candidate(kind, stage)
                if found is not None:
                    choices.append((found[0], order, -stage, kind, *found[1:]))
        start, _, minus_stage, kind, source, m = min(choices)
        stage = -minus_stage
        rank = stage % num_ranks
        end = start + _SECONDS[kind] * (1.0 + 0.15 * (stage % 3)) * num_ranks / num_stages
        if 0 <= source < num_stages and source % num_ranks != rank:
            sent = ends[kind, source, m]
            word = f"{source}SEND_{'F' if kind == 'F' else 'B'}{m}"
            transfers.append(TimelineTransfer(source % num_ranks, rank, word, sent, sent + latency_s))
        ops.append(TimelineOp(rank, stage, kind, m, start, end))
        clock[rank] = ends[kind, stage, m] = end
        done[kind, stage] += 1
    return ops, transfers


def _memory_curve(
    ops: list[TimelineOp], rank: int, num_stages: int, limit_bytes: float | None
) -> MemoryCurve:
    """Return 34 GiB of state plus a share of 40 GiB per microbatch in flight."""
    per_microbatch = 40 * GIB / num_stages
    changes: dict[float, float] = {0.0: 0.0}
    for op in ops:
        if op.rank == rank and op.kind != "I":
            at, sign = (op.start_s, 1) if op.kind == "F" else (op.end_s, -1)
            changes[at] = changes.get(at, 0.0) + sign * per_microbatch
    level, times, sizes = 34 * GIB, [], []
    for time in sorted(changes):
        level += changes[time]
        times.append(time)
        sizes.append(level)
    return MemoryCurve(tuple(times), tuple(sizes), limit_bytes, 34 * GIB)
