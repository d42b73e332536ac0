"""Slots: warm worker processes that run one cell each at a time, under limits of time and memory.

A slot keeps its process from cell to cell, so that kernels are loaded once, and starts another one after a crash, a
timeout or too much memory. Tasks and answers are JSON lines over pipes: nothing is pickled, and nothing that a method
does can reach the study but through its answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from octoplan.study.answer import failure
from octoplan.study.plugins import Plugin
from octoplan.study.worker import IDLE_S
from octoplan_schemas import CellLimits, InputError

#: Seconds that loading the kernels may take: the first run on a machine compiles them.
_START_S = 600.0
_TICK_S = 0.05
_TAIL_BYTES = 2000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class SlotClosedError(Exception):
    """The slot was closed while it worked: there is no answer, and nobody waits for one."""


class Slot:
    """One worker process, started when first needed. One thread at a time uses it; any may `interrupt` it."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = plugins
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._machine: dict[str, str] = {}
        self._last_used = 0.0
        self._interrupted = threading.Event()

    def run(self, task: dict[str, Any], limits: CellLimits) -> dict[str, Any]:
        """Return the worker's answer, or a failure: ``timeout``, ``memory`` or ``crash``.

        Raises
        ------
        SlotClosedError
            If `interrupt` is called meanwhile.
        InputError
            If the worker cannot load a plugin.
        """
        self._ensure_worker()
        started = time.monotonic()
        watch = _Watch(self._require().pid, limits)
        outcome = self._exchange(task, watch, started + limits.time_s)
        if "status" not in outcome:
            outcome = failure(outcome["stopped"], outcome["why"], time.monotonic() - started)
            self.stop()
        else:
            watch.is_above()  # so that even the shortest cell is measured once
        self._last_used = time.monotonic()
        return {**outcome, **self._machine, "worker_peak_bytes": watch.peak_bytes}

    def interrupt(self) -> None:
        """Kill the process; the thread that waits for its answer is told."""
        self._interrupted.set()
        if self._process is not None:
            _kill_group(self._process.pid)

    def stop(self) -> None:
        """End the process and everything it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill_group(process.pid)
        process.wait()
        for stream in (process.stdin, process.stdout, self._stderr):
            if stream is not None:
                # What was not sent cannot be sent any more.
                with contextlib.suppress(OSError):
                    stream.close()

    def _ensure_worker(self) -> None:
        """Start a process unless a living one is there, and wait until its kernels are loaded."""
        # One that is about to end because it was idle for long must not get a task.
        is_fresh = time.monotonic() - self._last_used < IDLE_S / 2
        if self._process is not None and self._process.poll() is None and is_fresh:
            return
        self.stop()
        # The same modules must be found as here, whatever put them on the path; -P keeps the current folder off it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "octoplan.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            start_new_session=True,
        )
        plugins = [{"path": plugin.path, "text": plugin.text} for plugin in self._plugins]
        hello = self._exchange({"plugins": plugins}, None, time.monotonic() + _START_S)
        if "machine" not in hello:
            self.stop()
            raise InputError(hello.get("error") or f"a worker process did not start: {hello['why']}")
        self._machine = hello["machine"]

    def _exchange(self, message: dict[str, Any], watch: _Watch | None, deadline: float) -> dict[str, Any]:
        """Send a line and wait for one; ``{"stopped": status, "why": text}`` if none comes."""
        process = self._require()
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return self._crash(process)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if selector.select(_TICK_S):
                    data = os.read(process.stdout.fileno(), 1 << 20)
                    if not data:
                        return self._crash(process)
                    line += data
                elif self._interrupted.is_set():
                    raise SlotClosedError
                elif watch is not None and watch.is_above():
                    return {"stopped": "memory", "why": f"took more than {watch.limit_bytes:,.0f} bytes"}
                elif time.monotonic() > deadline:
                    return {"stopped": "timeout", "why": "ran over the cell's time"}
        try:
            document = json.loads(line)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            return {"stopped": "crash", "why": "the worker answered with something else than a JSON object"}
        return document

    def _crash(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Say how the process ended, and the last thing that it printed."""
        if self._interrupted.is_set():
            raise SlotClosedError
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # it has closed its output, and lives on
            code = 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return {"stopped": "crash", "why": f"the worker ended {how}. {self._last_words()}".strip()}

    def _last_words(self) -> str:
        if self._stderr is None:
            return ""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(size - _TAIL_BYTES, 0))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return lines[0] if lines and lines[0].startswith("Fatal") else lines[-1] if lines else ""

    def _require(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None:
            raise SlotClosedError
        return process


class _Watch:
    """Watches the resident memory of a process and of those that it has started (Linux; elsewhere it sees none)."""

    def __init__(self, pid: int, limits: CellLimits) -> None:
        self._pid = pid
        self.limit_bytes = limits.memory_bytes
        self.peak_bytes = 0

    def is_above(self) -> bool:
        """Measure; True if the limit is exceeded."""
        self.peak_bytes = max(self.peak_bytes, _resident_bytes(self._pid))
        return self.peak_bytes > self.limit_bytes


def _resident_bytes(pid: int) -> int:
    """Return the bytes of memory that a process and its descendants hold; 0 if that cannot be seen."""
    total, pids = 0, [pid]
    while pids:
        one = pids.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * _PAGE_BYTES
            for task in Path(f"/proc/{one}/task").iterdir():
                pids += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    return total


def _kill_group(pid: int) -> None:
    """Kill a worker and what it has started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class SlotPool:
    """The slots of one process: as many as cells run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[Plugin, ...], list[Slot]] = {}
        self._busy: set[Slot] = set()
        self._closed = False

    def run(self, task: dict[str, Any], limits: CellLimits, plugins: tuple[Plugin, ...]) -> dict[str, Any]:
        """Run a task in an idle slot, or in a new one."""
        with self._lock:
            if self._closed:
                raise SlotClosedError
            idle = self._idle.setdefault(plugins, [])
            slot = idle.pop() if idle else Slot(plugins)
            self._busy.add(slot)
        try:
            return slot.run(task, limits)
        finally:
            with self._lock:
                self._busy.discard(slot)
                if not self._closed:
                    idle.append(slot)
            if self._closed:
                slot.stop()

    def close(self) -> None:
        """End every process; calls of `run` that wait for an answer raise `SlotClosedError`."""
        with self._lock:
            self._closed = True
            busy, idle = list(self._busy), [slot for slots in self._idle.values() for slot in slots]
        for slot in busy:
            slot.interrupt()
        for slot in idle:
            slot.stop()


@cache
def process_pool() -> SlotPool:
    """Return the pool of a process on another engine's worker: it outlives each call, so that slots stay warm."""
    return SlotPool()
