"""From a simulation to the timeline that the report draws."""

from __future__ import annotations

from octoplan.report.timeline import MemoryCurve, Timeline, TimelineOp, TimelineTransfer
from octoplan.simulator import Simulation
from octoplan.trace_file import Trace
from octoplan_schemas import Cluster, Plan, parse_word, transfer_words
from octoplan_solvers.ops import KIND_LETTERS, decode


def timeline_of(plan: Plan, simulation: Simulation, cluster: Cluster | None = None) -> Timeline:
    """Return everything that a picture of a plan shows."""
    return Timeline(
        title=f"{plan.model.name} on {plan.cluster.name}, {plan.provenance.strategy}",
        num_ranks=plan.num_ranks,
        makespan_s=simulation.makespan_s,
        bubble_fraction=simulation.bubble_fraction,
        ops=tuple(TimelineOp(*op) for op in op_times(simulation)),
        transfers=tuple(TimelineTransfer(*transfer) for transfer in transfer_times(simulation)),
        memory=_memory_curves(simulation),
        stage_labels=tuple(
            f"stage {stage.id}: layers {stage.layers[0]}-{stage.layers[1] - 1} on rank {stage.rank}"
            for stage in plan.stages
        ),
        rank_labels=()
        if cluster is None
        else tuple(f"rank {rank} ({device.name})" for rank, device in enumerate(cluster.devices)),
    )


def measured_timeline(plan: Plan, predicted: Timeline, trace: Trace) -> Timeline:
    """Return a picture with two rows per rank: what was measured, and below it what was predicted.

    Predicted times are those of ``predicted`` times the trace's scale.
    """
    rank_of = {stage.id: stage.rank for stage in plan.stages}
    ops = [
        TimelineOp(
            2 * op.rank + 1,
            op.stage,
            op.kind,
            op.microbatch,
            trace.scale * op.start_s,
            trace.scale * op.end_s,
        )
        for op in predicted.ops
    ]
    transfers = []
    for rank, text, start_s, end_s in trace.ops:
        word = parse_word(text)
        if word.is_compute:
            ops.append(TimelineOp(2 * rank, word.stage, word.kind, word.microbatch, start_s, end_s))
        else:
            transfers.append(TimelineTransfer(2 * rank, 2 * rank_of[word.other_stage], text, start_s, end_s))
    measured = [op for op in ops if op.rank % 2 == 0]
    makespan_s = max(op.end_s for op in measured) - min(op.start_s for op in measured)
    busy_s = sum(op.end_s - op.start_s for op in measured)
    predicted_s = trace.scale * predicted.makespan_s
    return Timeline(
        title=f"{predicted.title}: measured {makespan_s:.4g} s above predicted {predicted_s:.4g} s",
        num_ranks=2 * plan.num_ranks,
        makespan_s=max(makespan_s, predicted_s),
        bubble_fraction=1 - busy_s / (plan.num_ranks * makespan_s) if makespan_s > 0 else 0.0,
        ops=tuple(ops),
        transfers=tuple(transfers),
        stage_labels=predicted.stage_labels,
        rank_labels=tuple(
            f"{predicted.rank_label(rank)}, {what}"
            for rank in range(plan.num_ranks)
            for what in ("measured", "predicted")
        ),
        rows_per_rank=2,
    )


def op_times(simulation: Simulation) -> list[tuple[int, int, str, int, float, float]]:
    """Return ``(rank, stage, kind, microbatch, start_s, end_s)`` of every compute op."""
    order = simulation.schedule.order
    rows = []
    for rank in range(order.num_ranks):
        own = slice(order.rank_begin[rank], order.rank_begin[rank + 1])
        for code, start, end in zip(
            order.ops[own].tolist(),
            simulation.start_s[own].tolist(),
            simulation.end_s[own].tolist(),
            strict=True,
        ):
            stage, kind, microbatch = decode(code, order.num_microbatches)
            rows.append((rank, stage, KIND_LETTERS[kind], microbatch, start, end))
    return rows


def transfer_times(simulation: Simulation) -> list[tuple[int, int, str, float, float]]:
    """Return ``(source rank, destination rank, SEND word, start_s, arrival_s)`` of every message."""
    schedule = simulation.schedule
    staged = schedule.staged
    rows = []
    for code, start, arrival in zip(
        schedule.messages.tolist(),
        simulation.message_start_s.tolist(),
        simulation.message_arrival_s.tolist(),
        strict=True,
    ):
        slot, microbatch = divmod(code, staged.num_microbatches)
        edge, direction = divmod(slot, 2)
        ends = int(staged.edge_source[edge]), int(staged.edge_destination[edge])
        source, destination = ends if direction == 0 else ends[::-1]
        word = transfer_words(source, destination, "FB"[direction], microbatch)[0]
        rows.append(
            (int(staged.stage_rank[source]), int(staged.stage_rank[destination]), word, start, arrival)
        )
    return rows


def word_times(simulation: Simulation) -> list[tuple[int, str, float, float]]:
    """Return ``[rank, word, start_s, end_s]`` of every compute op and SEND (contract, section 6)."""
    rows = [
        (rank, f"{stage}{kind}{microbatch}", start, end)
        for rank, stage, kind, microbatch, start, end in op_times(simulation)
    ]
    rows += [(source, word, start, arrival) for source, _, word, start, arrival in transfer_times(simulation)]
    return rows


def _memory_curves(simulation: Simulation) -> tuple[MemoryCurve, ...]:
    staged = simulation.schedule.staged
    if not (simulation.memory.peak_bytes > 0).any():
        return ()
    curves = []
    for (times, values), limit, state in zip(
        simulation.memory_curves(),
        staged.memory_limit_bytes.tolist(),
        staged.state_bytes.tolist(),
        strict=True,
    ):
        shown = None if limit == float("inf") else limit
        curves.append(MemoryCurve(tuple(times.tolist()), tuple(values.tolist()), shown, state))
    return tuple(curves)
