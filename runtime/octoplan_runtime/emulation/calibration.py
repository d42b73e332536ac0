"""``octoplan run --calibrate``: what this machine adds to every op and every message, as a cluster file.

A pipeline of one stage per rank does all its forwards, then all its backwards, with ops that sleep for known times, the
first rank's the longest, so that every other rank waits for its input. What a step from one op to the next takes beyond
the sleep is the cost of an op; what passes beyond it until the next rank starts is the latency of a message.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import torch
import torch.distributed as dist

from octoplan_runtime.clocks import clock_offset_s
from octoplan_runtime.emulation.costs import EmulatedCosts, MachineCosts
from octoplan_runtime.emulation.device import EmulatedExecutor
from octoplan_runtime.emulation.workload import emulated_workload
from octoplan_runtime.errors import say
from octoplan_runtime.progress import Progress
from octoplan_schemas import Cluster, Plan, save

_SLOW_S, _FAST_S = 0.010, 0.005
_NUM_MICROBATCHES = 24
_MESSAGE_BYTES = 1 << 24
_NUM_MESSAGES = 4


def write_calibration(path: str, plan: Plan, rank: int, progress: Progress) -> None:
    """Measure with as many ranks as the plan has; rank 0 writes the file.

    Parameters
    ----------
    path:
        Of the cluster file.
    plan:
        Only its number of ranks counts.
    rank:
        This rank.
    progress:
        Told where this rank is.
    """
    gc.freeze()  # as in a run
    costs = calibrate(plan.num_ranks, progress)
    progress.enter("measuring bandwidth")
    bandwidth = _bandwidth(rank, plan.num_ranks)
    if rank == 0:
        progress.enter("measuring the device")
        save(path, _cluster(plan.num_ranks, costs, bandwidth))
        say(
            f"{path}: {plan.num_ranks} ranks, {1e6 * costs.op_overhead_s:.0f} us per op, "
            f"{1e6 * costs.latency_s:.0f} us per message, {bandwidth / 1e9:.2f} GB/s"
        )


def calibrate(num_ranks: int, progress: Progress) -> MachineCosts:
    """Return what this machine adds, the same on every rank; every rank takes part."""
    plan = calibration_plan(num_ranks)
    sleeps = [_SLOW_S] + [_FAST_S] * (num_ranks - 1)
    ops = tuple(dict.fromkeys("FBIW", sleep) for sleep in sleeps)
    transfers = {ends: (0.0, 0.0) for a in range(num_ranks - 1) for ends in ((a, a + 1), (a + 1, a))}
    workload = emulated_workload(plan)
    executor = EmulatedExecutor(
        plan, workload.layer, workload.loss, costs=EmulatedCosts(ops, transfers, 1.0), progress=progress
    )
    for step in range(2):
        executor.step(*workload.batch(step))
    starts = _starts(executor, clock_offset_s())
    return machine_costs(starts, sleeps)


def machine_costs(starts: Sequence[Sequence[Sequence[float]]], sleeps: Sequence[float]) -> MachineCosts:
    """Read the costs off the start times.

    Parameters
    ----------
    starts:
        ``starts[rank]`` holds the starts of the forwards and those of the backwards, by microbatch, in seconds.
    sleeps:
        What an op of each rank slept.
    """
    forward = _median_step(starts[0][0]) - sleeps[0]
    backward = _median_step(starts[-1][1]) - sleeps[-1]
    op_s = max((forward + backward) / 2, 0.0)
    delays = [
        after - before - sleeps[rank] - op_s
        for rank in range(len(starts) - 1)
        for before, after in zip(starts[rank][0], starts[rank + 1][0], strict=True)
    ]
    return MachineCosts(op_s, max(median(delays), 0.0) if delays else 0.0)


def calibration_plan(num_ranks: int) -> Plan:
    """Return the pipeline that is run: every rank does all forwards, then all backwards."""
    microbatches = range(_NUM_MICROBATCHES)
    programs = []
    for rank in range(num_ranks):
        words = []
        for m in microbatches:
            words += [f"{rank}RECV_F{m}"] if rank > 0 else []
            words += [f"{rank}F{m}"]
            words += [f"{rank}SEND_F{m}"] if rank < num_ranks - 1 else []
        for m in microbatches:
            words += [f"{rank}RECV_B{m}"] if rank < num_ranks - 1 else []
            words += [f"{rank}B{m}"]
            words += [f"{rank}SEND_B{m}"] if rank > 0 else []
        programs.append(words)
    return Plan.from_document(
        {
            "format": Plan.FORMAT,
            "model": {"name": "calibration", "sha256": ""},
            "cluster": {"name": "calibration", "sha256": ""},
            "job": {
                "microbatches": _NUM_MICROBATCHES,
                "backward": "fused",
                "max_stages_per_device": 1,
                "memory_limit": None,
            },
            "stages": [{"id": rank, "layers": [rank, rank + 1], "rank": rank} for rank in range(num_ranks)],
            "programs": programs,
            "predicted": {
                "makespan_s": 0.0,
                "lower_bound_s": None,
                "gap": None,
                "bubble_fraction": 0.0,
                "ranks": [],
            },
            "provenance": {"strategy": "calibration"},
        }
    )


def _starts(executor: EmulatedExecutor, offset_s: float) -> list[list[list[float]]]:
    """Return every rank's starts on rank 0's clock."""
    words = executor.plan.programs[executor.rank]
    times = dict(zip(words, executor.times.start, strict=True))
    own = torch.tensor(
        [
            [times[f"{executor.rank}{kind}{m}"] - offset_s for m in range(_NUM_MICROBATCHES)]
            for kind in ("F", "B")
        ],
        dtype=torch.float64,
    )
    rows = [torch.empty_like(own) for _ in range(executor.plan.num_ranks)]
    dist.all_gather(rows, own)
    return [row.tolist() for row in rows]


def _median_step(starts: Sequence[float]) -> float:
    return median(after - before for before, after in pairwise(starts))


def _bandwidth(rank: int, num_ranks: int) -> float:
    """Return bytes per second from rank 0 to rank 1, on rank 0; a single rank copies to itself."""
    message = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
    answer = torch.zeros(1)
    if num_ranks == 1:
        return _MESSAGE_BYTES / _best_s(lambda: message.clone())

    def exchange() -> None:
        if rank == 0:
            dist.send(message, dst=1)
            dist.recv(answer, src=1)
        elif rank == 1:
            dist.recv(message, src=0)
            dist.send(answer, dst=0)

    return _MESSAGE_BYTES / _best_s(exchange)


def _best_s(action: Callable[[], object]) -> float:
    times = []
    for _ in range(_NUM_MESSAGES):
        start = time.monotonic()
        action()
        times.append(time.monotonic() - start)
    return max(min(times), 1e-9)


def _cluster(num_ranks: int, costs: MachineCosts, bandwidth: float) -> Cluster:
    matrix, block = torch.rand(512, 512), torch.zeros(1 << 22)
    matrix_s = _best_s(lambda: matrix @ matrix)
    block_s = _best_s(lambda: block.add_(1.0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    link = {"latency_s": costs.latency_s, "bandwidth": bandwidth}
    return Cluster.from_document(
        {
            "format": Cluster.FORMAT,
            "name": f"calibrated-x{num_ranks}",
            "device_types": {
                "cpu": {
                    "memory_bytes": memory // num_ranks,
                    "peak_flops": 2 * 512**3 / matrix_s,
                    "memory_bandwidth": 2 * block.nbytes / block_s,
                    "op_overhead_s": costs.op_overhead_s,
                }
            },
            "devices": [{"name": f"cpu{rank}", "type": "cpu", "node": "here"} for rank in range(num_ranks)],
            "links": {"intra_node": link, "inter_node": link},
        }
    )
