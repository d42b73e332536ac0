"""Ctrl-C in every phase of ``octoplan compile``: a real terminal, a real signal, a whole plan."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import octoplan
from octoplan_schemas import save
from tests.builders import make_cluster, make_layer, make_model

#: Runs one command line after the other, so that kernels are loaded once.
_CHILD = """
import json, sys
from octoplan.cli.app import run
for arguments in json.loads(sys.argv[1]):
    print("exit code", run(arguments), flush=True)
"""
_MOST_S = 240.0
#: Layers, ranks, microbatches, and what makes the phase last until the signal comes.
_CASES = {
    "loading kernels": (8, 2, 4, ["--time-limit", "600"]),
    "baselines": (40, 8, 48, ["--time-limit", "600"]),
    "bound": (40, 4, 16, ["--time-limit", "600"]),
    "search": (12, 3, 16, ["--max-evaluations", "100000000"]),
    "finish": (12, 3, 16, ["--max-evaluations", "15000"]),
    "proof": (9, 4, 4, ["--time-limit", "8"]),
}


class Terminal:
    """A child on a pseudo-terminal."""

    def __init__(self, arguments: list[str]) -> None:
        self._screen, inside = pty.openpty()
        self._child = subprocess.Popen(
            arguments, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
        )
        os.close(inside)
        self._read = b""

    def wait_for(self, text: str) -> bytes:
        """Read on until a text comes; return what was read, and forget it."""
        end = time.monotonic() + _MOST_S
        while text.encode() not in self._read:
            assert time.monotonic() < end, f"no {text!r} in {self._read[-2000:]!r}"
            if select.select([self._screen], [], [], 1.0)[0]:
                try:
                    self._read += os.read(self._screen, 65536)
                except OSError:
                    pytest.fail(f"the child ended without {text!r}: {self._read[-2000:]!r}")
        before, self._read = self._read, b""
        return before

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        os.kill(self._child.pid, signal.SIGINT)

    def exit_code(self) -> int:
        """Wait for the child to end."""
        return self._child.wait(timeout=_MOST_S)

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()
        os.close(self._screen)


def write_inputs(folder: Path, num_layers: int, num_ranks: int) -> list[str]:
    times = np.random.default_rng(num_layers).uniform(0.5, 2.0, size=(num_layers, 3))
    layers = [make_layer(f"l{index}", *row.tolist(), output_bytes=1) for index, row in enumerate(times)]
    model, cluster = folder / f"model-{num_layers}.json", folder / f"cluster-{num_ranks}.json"
    save(model, make_model(layers))
    save(cluster, make_cluster(num_ranks, latency_s=0.05))
    return ["--model", str(model), "--cluster", str(cluster)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where inputs and plans are."""
    return tmp_path_factory.mktemp("interrupt")


@pytest.fixture(scope="module")
def terminal(folder: Path) -> Iterator[Terminal]:
    """One child that compiles case after case."""
    commands = []
    for name, (num_layers, num_ranks, microbatches, extra) in _CASES.items():
        files = write_inputs(folder, num_layers, num_ranks)
        output = ["-o", str(folder / f"{name}.json"), "--microbatches", str(microbatches)]
        commands.append(["compile", *files, *output, *extra])
    child = Terminal([sys.executable, "-c", _CHILD, json.dumps(commands)])
    yield child
    child.close()


@pytest.mark.parametrize("phase", _CASES)
def test_the_best_plan_so_far_is_written(phase: str, terminal: Terminal, folder: Path) -> None:
    """The cases run in the order of the table."""
    terminal.wait_for(phase)
    time.sleep(0.2)
    terminal.interrupt()
    shown = terminal.wait_for("exit code 0")
    assert b"interrupted: " in shown
    assert b"holds the best plan so far" in shown
    num_layers, num_ranks, microbatches, _ = _CASES[phase]
    plan = octoplan.load_plan(folder / f"{phase}.json")
    assert plan.job.microbatches == microbatches
    assert (plan.provenance.model_extra or {})["interrupted"] is True
    model, cluster = (folder / f"model-{num_layers}.json", folder / f"cluster-{num_ranks}.json")
    inputs = octoplan.import_model(model), octoplan.load_cluster(cluster)
    assert octoplan.check(plan, *inputs) == []


def test_a_second_ctrl_c_ends_the_program_and_leaves_no_file(folder: Path) -> None:
    files = write_inputs(folder, 12, 3)
    output = folder / "second.json"
    command = [*files, "-o", str(output), "--microbatches", "16", "--max-evaluations", "100000000"]
    # A search whose end hangs does not see the first signal.
    slow = (
        "import sys, time, octoplan.tuner.search\n"
        "sys.modules['octoplan.tuner.search'].finish = lambda *a, **k: time.sleep(600)\n"
        "from octoplan.cli.app import main\n"
        f"main({['compile', *command]!r})\n"
    )
    child = Terminal([sys.executable, "-c", slow])
    try:
        child.wait_for("search")
        child.interrupt()
        time.sleep(1.0)
        child.interrupt()
        child.wait_for("octoplan: error: interrupted")
        assert child.exit_code() == 130
    finally:
        child.close()
    assert not output.exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
