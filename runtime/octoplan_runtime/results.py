"""Collect times and errors of all ranks on rank 0, as plain numbers, and make the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from octoplan_runtime.emulation import prediction
from octoplan_runtime.emulation.costs import EmulatedCosts
from octoplan_runtime.executor import PipelineExecutor
from octoplan_runtime.kinds import compare_kinds
from octoplan_runtime.options import RunOptions
from octoplan_runtime.preparation import PreparedRun
from octoplan_runtime.report import RankReport, RunReport
from octoplan_runtime.trace import Op, shifted, write_trace
from octoplan_runtime.verification import TOLERANCES, Verification
from octoplan_schemas import Plan, parse_word


@dataclass(frozen=True, slots=True)
class _RankNumbers:
    """What one rank tells rank 0; the worst parameter is a number in the order of its own parameters."""

    num_parameters: int
    receive_buffer_bytes: int
    error: float
    worst_parameter: int
    times: list[float]


def gather(
    options: RunOptions,
    run: PreparedRun,
    executor: PipelineExecutor,
    losses: list[float | None],
    verification: Verification | None,
    offset_s: float,
) -> RunReport | None:
    """Return the report on rank 0, None elsewhere; every rank takes part.

    Parameters
    ----------
    options, run:
        What was run.
    executor:
        This rank's part, with the times of its last step.
    losses:
        Of every step; None for one that was not finite.
    verification:
        This rank's comparison, if there was one.
    offset_s:
        This rank's clock minus rank 0's.
    """
    executor.progress.enter("gathering results")
    mine = _own_numbers(executor, verification, offset_s)
    if executor.rank != 0:
        dist.send(mine, dst=0)
        return None
    rows = [mine] + [_received(run.plan, rank) for rank in range(1, run.plan.num_ranks)]
    numbers = [
        _RankNumbers(int(row[0]), int(row[1]), float(row[2]), int(row[3]), row[4:].tolist()) for row in rows
    ]
    return _report(options, run, numbers, losses, verification)


def _own_numbers(
    executor: PipelineExecutor, verification: Verification | None, offset_s: float
) -> torch.Tensor:
    num_parameters = sum(parameter.numel() for parameter in executor.parameters())
    worst = (verification.worst.error, verification.worst.parameter) if verification else (0.0, -1)
    times = [time for pair in executor.times.on_clock(offset_s) for time in pair]
    return torch.tensor([num_parameters, executor.receive_buffer_bytes, *worst, *times], dtype=torch.float64)


def _received(plan: Plan, rank: int) -> torch.Tensor:
    row = torch.empty(4 + 2 * len(plan.programs[rank]), dtype=torch.float64)
    dist.recv(row, src=rank)
    return row


def _report(
    options: RunOptions,
    run: PreparedRun,
    numbers: Sequence[_RankNumbers],
    losses: list[float | None],
    verification: Verification | None,
) -> RunReport:
    plan = run.plan
    ops = shifted(
        [
            (rank, word, row.times[2 * position], row.times[2 * position + 1])
            for rank, row in enumerate(numbers)
            for position, word in enumerate(plan.programs[rank])
        ]
    )
    predicted = _predicted(run)
    scale = 1.0 if run.costs is None else run.costs.scale
    if options.trace is not None:
        write_trace(options.trace, plan, ops, predicted, scale)
    compute = [op for op in ops if parse_word(op[1]).is_compute]
    makespan_s = prediction.makespan_s(compute)
    ranks = [
        _rank_report(plan, rank, row, compute, makespan_s, verification) for rank, row in enumerate(numbers)
    ]
    worst = max(ranks, key=lambda rank: rank.max_relative_gradient_error or 0.0)
    tolerance = TOLERANCES[options.autocast or options.dtype] if verification else None
    loss_error = verification.worst_loss_error if verification else None
    largest = max(worst.max_relative_gradient_error or 0.0, loss_error or 0.0)
    return RunReport(
        loss=losses[-1],
        losses=losses,
        max_relative_gradient_error=worst.max_relative_gradient_error,
        max_relative_loss_error=loss_error,
        tolerance=tolerance,
        gradients_match=None if tolerance is None else largest <= tolerance,
        worst_parameter=worst.worst_parameter,
        measured_makespan_s=makespan_s,
        predicted_makespan_s=prediction.makespan_s(predicted) if run.costs else plan.predicted.makespan_s,
        scale=scale,
        kinds=compare_kinds(ops, predicted),
        ranks=ranks,
        ops=ops,
    )


def _predicted(run: PreparedRun) -> list[Op]:
    """Return what the times are compared with; nothing where the plan does not record its costs."""
    if run.costs is not None:
        return prediction.predicted_ops(run.plan, run.costs.on(run.machine))
    if not run.plan.predicted.stages:
        return []
    return prediction.predicted_ops(run.plan, EmulatedCosts.of(run.plan, 1.0))


def _rank_report(
    plan: Plan,
    rank: int,
    numbers: _RankNumbers,
    compute: Sequence[Op],
    makespan_s: float,
    verification: Verification | None,
) -> RankReport:
    busy_s = sum(end - start for op_rank, _, start, end in compute if op_rank == rank)
    names = verification.names_of(rank) if verification else []
    stages = plan.stages_of(rank)
    return RankReport(
        rank=rank,
        stages=[stage.id for stage in stages],
        num_layers=sum(stage.layers[1] - stage.layers[0] for stage in stages),
        num_parameters=numbers.num_parameters,
        busy_s=busy_s,
        idle_s=makespan_s - busy_s,
        receive_buffer_bytes=numbers.receive_buffer_bytes,
        max_relative_gradient_error=numbers.error if verification else None,
        worst_parameter=names[numbers.worst_parameter] if numbers.worst_parameter >= 0 else None,
    )
