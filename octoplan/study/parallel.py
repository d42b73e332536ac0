"""Cells in parallel through joblib: here, on a Dask cluster, or on a Ray cluster.

Wherever it runs, a cell has a worker process of its own (`octoplan.study.slots`), so an engine only carries tasks
there and answers back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import joblib

from octoplan.study.plugins import Plugin
from octoplan.study.slots import SlotClosedError, SlotPool, process_pool
from octoplan_schemas import CellLimits, InputError

#: Engines of ``--parallel``.
ENGINES = ("local", "dask", "ray")


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine and how many cells it runs at once."""

    name: str
    jobs: int

    def run(
        self, tasks: Iterable[dict[str, Any]], limits: CellLimits, plugins: tuple[Plugin, ...]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of a task and its answer, in the order in which they are finished."""
        # One by one: an answer in a batch would wait for the others, and be lost with them.
        parallel = joblib.Parallel(
            n_jobs=self.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * self.jobs
        )
        pool = SlotPool() if self.name == "local" else None
        calls = (
            joblib.delayed(_run_cell)(number, task, limits, plugins, pool)
            for number, task in enumerate(tasks)
        )
        with _interruptible(pool):
            yield from (answer for answer in parallel(calls) if answer is not None)


@contextmanager
def parallel_engine(text: str, jobs: int | None) -> Iterator[Engine]:
    """Start or connect to an engine.

    Parameters
    ----------
    text:
        ``local``, ``dask``, ``dask=ADDRESS``, ``ray`` or ``ray=ADDRESS``.
    jobs:
        Cells at a time; None: half the cores here, or all that the other engine has.

    Raises
    ------
    InputError
        If there is no such engine, it is not installed, or nobody answers at the address.
    """
    name, _, address = text.partition("=")
    if name not in ENGINES or (name == "local" and address):
        raise InputError(
            f"must be local, dask, dask=ADDRESS, ray or ray=ADDRESS, not {text!r}", field="parallel"
        )
    if jobs is not None and jobs < 1:
        raise InputError(f"must be at least 1, not {jobs}", field="jobs")
    start = {"local": _local, "dask": _dask, "ray": _ray}[name]
    with start(address, jobs) as engine:
        yield engine


@contextmanager
def _local(address: str, jobs: int | None) -> Iterator[Engine]:
    """Threads that wait for worker processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = jobs or max(1, cores // 2)
    with joblib.parallel_config(backend="threading", n_jobs=count):
        yield Engine("local", count)


@contextmanager
def _dask(address: str, jobs: int | None) -> Iterator[Engine]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("dask is not installed; pip install distributed", field="parallel") from None
    try:
        client = Client(address) if address else Client(dashboard_address=None)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address!r}: {error}", field="parallel") from None
    with client:
        count = jobs or max(sum(client.ncores().values()), 1)
        with joblib.parallel_config(backend="dask", n_jobs=count):
            yield Engine("dask", count)


@contextmanager
def _ray(address: str, jobs: int | None) -> Iterator[Engine]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise InputError("ray is not installed; pip install ray", field="parallel") from None
    try:
        ray.init(address=address or None, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"no Ray cluster answers at {address!r}: {error}", field="parallel") from None
    register_ray()
    count = jobs or max(int(ray.cluster_resources().get("CPU", 1)), 1)
    with joblib.parallel_config(backend="ray", n_jobs=count):
        yield Engine("ray", count)


def _run_cell(
    number: int, task: dict[str, Any], limits: CellLimits, plugins: tuple[Plugin, ...], pool: SlotPool | None
) -> tuple[int, dict[str, Any]] | None:
    """Run a task in a slot of this process; None if the study ends meanwhile."""
    try:
        return number, (pool or process_pool()).run(task, limits, plugins)
    except SlotClosedError:
        return None


@contextmanager
def _interruptible(pool: SlotPool | None) -> Iterator[None]:
    """End the pool's processes when the block ends, and on Ctrl-C before anybody waits for them."""
    if pool is None:
        yield
        return
    try:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(signum: int, frame: Any) -> None:
            pool.close()
            raise KeyboardInterrupt

        previous = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
    finally:
        pool.close()
