"""One rank of a run: join the group, build this rank's layers, train, compare, report."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from octoplan_runtime.board import Board
from octoplan_runtime.clocks import clock_offset_s
from octoplan_runtime.emulation import EmulatedExecutor
from octoplan_runtime.emulation.calibration import write_calibration
from octoplan_runtime.errors import PipelineError, one_line, say
from octoplan_runtime.executor import PipelineExecutor
from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.optimizer import make_optimizer
from octoplan_runtime.options import RunOptions
from octoplan_runtime.preparation import PreparedRun, prepare
from octoplan_runtime.progress import Progress
from octoplan_runtime.reference import SingleProcess
from octoplan_runtime.report import RunReport
from octoplan_runtime.results import gather
from octoplan_runtime.verification import Verification
from octoplan_runtime.watchdog import Watchdog, leave
from octoplan_schemas import InputError

#: How long a rank whose peer has vanished waits to learn why.
_CAUSE_WAIT_S = 3.0
_SIGNS_OF_A_LOST_PEER = ("Connection", "pair closure", "Timed out")


def run_rank(options: RunOptions) -> RunReport | None:
    """Run this process's rank, given by ``RANK`` and ``WORLD_SIZE``; rank 0 returns the report.

    A failure ends the process: code 1 after one line that names rank, op and message, or 2 on bad input.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    run = _prepare_or_leave(options, rank, world_size)
    progress = Progress()
    with joined_group(rank, world_size, options.timeout_s, progress):
        if options.calibrate is not None:
            write_calibration(options.calibrate, run.plan, rank, progress)
            return None
        return _train(options, run, rank, progress)


@contextmanager
def joined_group(
    rank: int, world_size: int, timeout_s: float, progress: Progress, backend: str = "gloo"
) -> Iterator[Board]:
    """Join the process group and be watched; any exception inside ends this process, and then all others.

    Parameters
    ----------
    rank, world_size:
        As in the environment variables ``RANK`` and ``WORLD_SIZE``.
    timeout_s:
        The longest that a rank may stay in one op, in seconds.
    progress:
        Given to the executor too: where this rank is.
    backend:
        Of the process group; ``"cpu:gloo,cuda:nccl"`` where layers are on GPUs.
    """
    progress.enter("the meeting of the ranks")
    # A little longer than the watchdog's patience: it knows where the other ranks are, gloo does not.
    patience = timedelta(seconds=timeout_s + 10.0)
    try:
        store = _store_of_this_attempt(rank, world_size, patience)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=patience)
        board = Board.connect(timeout_s)
    except Exception as error:
        leave(rank, progress.word, f"rank {rank} failed in {progress.word}: {one_line(error)}")
    watchdog = Watchdog(board, progress, rank, world_size, timeout_s)
    watchdog.start()
    try:
        yield board
        progress.enter("the end of the run")
        dist.barrier()
    except BaseException as error:
        watchdog.stop()
        _leave_with(error, board, rank, progress)
    watchdog.stop()
    dist.destroy_process_group()


def _store_of_this_attempt(rank: int, world_size: int, timeout: timedelta) -> Store:
    """Return torch's store without what an earlier attempt has left in it.

    After a restart torchrun's store still holds the addresses of the processes that are gone, and gloo would try to
    connect to them.
    """
    store, _, _ = next(rendezvous("env://", rank, world_size, timeout=timeout))
    return PrefixStore(f"octoplan/attempt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _prepare_or_leave(options: RunOptions, rank: int, world_size: int) -> PreparedRun:
    """Every rank meets the same bad input; rank 0 speaks for all."""
    try:
        run = prepare(options)
        if world_size != run.plan.num_ranks:
            raise InputError(
                f"the plan is for {run.plan.num_ranks} ranks, but {world_size} processes were started; start "
                f"{run.plan.num_ranks}, or compile a plan for {world_size} devices",
                source=options.plan,
                field="programs",
            )
        if rank == 0 and run.model_is_unknown:
            say(f"warning: {options.plan} does not say which model it was made for")
        return run
    except InputError as error:
        if rank == 0:
            say(str(error))
        sys.exit(2)


def _leave_with(error: BaseException, board: Board, rank: int, progress: Progress) -> NoReturn:
    """Make the failure known to all, print one line, and end this process."""
    failure = (
        error if isinstance(error, PipelineError) else PipelineError(rank, progress.word, one_line(error))
    )
    if isinstance(error, InputError):
        text = f"rank {rank}: {error}"
        if board.fail(text) == text:  # else another rank has met it too, and said so
            say(str(error))
        os._exit(2)
    # A broken transfer is mostly the echo of another rank's failure, which is about to be known.
    is_echo = any(sign in failure.message for sign in _SIGNS_OF_A_LOST_PEER)
    cause = board.failure(_CAUSE_WAIT_S if is_echo else 0.0)
    leave(rank, failure.word, cause or board.fail(str(failure)))


def _train(options: RunOptions, run: PreparedRun, rank: int, progress: Progress) -> RunReport | None:
    workload, dtype = run.workload, getattr(torch, options.dtype)
    executor = _executor(options, run, progress)
    verification = _verification(options, run, executor, dtype) if options.verify else None
    optimizer = make_optimizer(executor.parameters())
    losses: list[float | None] = []
    # What is loaded stays: a full collection would look at it all, for a tenth of a second, in the middle of a step.
    gc.freeze()
    progress.enter("the comparison of clocks")
    offset_s = clock_offset_s()
    for step in range(options.steps):
        inputs, targets = workload.batch_in(step, dtype)
        progress.enter("the meeting before a step")
        dist.barrier()
        loss = executor.step(inputs, targets)
        losses.append(loss.item() if loss.isfinite() else None)
        if rank == 0:
            say(f"step {step + 1}: loss {loss.item():.6g}")
        if verification is not None:
            verification.compare(inputs, targets, loss)
        if optimizer is not None:
            progress.enter("the optimizer step")
            optimizer.step()
            optimizer.zero_grad()
    return gather(options, run, executor, losses, verification, offset_s)


def _executor(options: RunOptions, run: PreparedRun, progress: Progress) -> PipelineExecutor:
    progress.enter("building layers")
    workload = run.workload
    parts = (run.plan, workload.layer_in(getattr(torch, options.dtype)), workload.loss)
    settings: dict[str, Any] = {
        "skips": workload.skips,
        "tied": workload.tied,
        "labelled": options.debug,
        "progress": progress,
    }
    if run.costs is not None:
        return EmulatedExecutor(*parts, costs=run.costs, **settings)
    return PipelineExecutor(*parts, mode=_mode(options), **settings)


def _mode(options: RunOptions) -> ForwardMode:
    autocast = None if options.autocast is None else getattr(torch, options.autocast)
    return ForwardMode(autocast=autocast, seed=options.seed)


def _verification(
    options: RunOptions, run: PreparedRun, executor: PipelineExecutor, dtype: torch.dtype
) -> Verification:
    ranks = [stage.rank for stage in run.plan.stages for _ in range(*stage.layers)]
    reference = None
    if executor.rank == 0:
        reference = SingleProcess(
            run.workload.layer_in(dtype),
            run.workload.loss,
            num_layers=run.workload.num_layers,
            num_microbatches=run.plan.job.microbatches,
            skips=run.workload.skips,
            tied=run.workload.tied,
            mode=_mode(options),
        )
    return Verification(executor, reference, ranks)
