"""``python -m octoplan.study.worker``: answers tasks, one JSON line each, until its standard input ends.

It stays warm: kernels are loaded once. The first line that it reads lists the plugins. When standard input ends its
parent is gone or does not want the answer any more, and the worker ends at once with every process it has started.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

#: Seconds without a task after which a worker ends; the next task starts another.
IDLE_S = 120.0


def main() -> None:
    """Serve tasks."""
    faulthandler.enable()
    output = _take_output()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    _write(output, _prepare(json.loads(lines.get())))
    # Imported late, so that a plugin's error is told before anything else can go wrong.
    from octoplan.study.answer import answer

    while True:
        try:
            line = lines.get(timeout=IDLE_S)
        except queue.Empty:
            return
        _write(output, answer(json.loads(line)))


def _take_output() -> BinaryIO:
    """Keep standard output for answers; what solvers print goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def _read_lines(lines: queue.SimpleQueue[bytes]) -> None:
    """Hand lines over as they come; end the whole process group with the last one."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os.killpg(0, signal.SIGKILL)


def _prepare(hello: dict[str, Any]) -> dict[str, Any]:
    """Load plugins and kernels; say what this process is."""
    from octoplan.study.machine import describe_machine
    from octoplan.study.plugins import Plugin, register_plugin
    from octoplan.tuner import warm_up
    from octoplan_schemas import InputError

    try:
        for plugin in hello["plugins"]:
            register_plugin(Plugin(plugin["path"], plugin["text"]))
    except InputError as error:
        return {"error": str(error)}
    warm_up()
    return {"machine": describe_machine()}


def _write(output: BinaryIO, document: dict[str, Any]) -> None:
    output.write(json.dumps(document).encode() + b"\n")
    output.flush()


if __name__ == "__main__":
    main()
