"""``octoplan run``: hands the plan to the torch runtime, which is a package of its own.

The compiler never imports torch, and a GPU node needs no solver; so the runtime is started as a program.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from octoplan.cli import options as flags
from octoplan_schemas import Cluster, InputError, ModelGraph, load, save
from octoplan_schemas.files import read_json

_PROGRAM = "octoplan_runtime"


@flags.with_import_flags
def run(
    imports: flags.ImportFlags,
    plan: flags.PlanFile,
    model: flags.OptionalModelSource = None,
    cluster: flags.OptionalClusterFile = None,
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="MODULE:FUNCTION", help="Your own layers and loss.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps.")] = 1,
    dtype: Annotated[str, typer.Option("--dtype", metavar="float32|float64|bfloat16")] = "float32",
    autocast: Annotated[
        str | None,
        typer.Option(
            "--autocast", metavar="bfloat16|float16", help="Compute in this type, train in float32."
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with a single process.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Longest that a rank may stay in one op, seconds.")
    ] = 60.0,
    seed: Annotated[int, typer.Option("--seed", help="Of the miniature's parameters and data.")] = 0,
    debug: Annotated[
        bool, typer.Option("--debug", help="Label every message and check it on arrival.")
    ] = False,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Sleep for the plan's times; C is a calibrated cluster or none.")
    ] = False,
    scale: Annotated[
        str, typer.Option("--scale", help="With --emulate: factor on times; auto makes the mean op 50 ms.")
    ] = "1",
    calibrate: Annotated[
        Path | None,
        typer.Option(
            "--calibrate", metavar="FILE", help="Only measure this machine's own costs, as a cluster file."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write the measured times of the last step."),
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="With --json: every op's measured start and end.")
    ] = False,
    json_output: flags.Json = False,
) -> int:
    """Run a plan with torch: local processes, or this rank under torchrun; without --layers on a miniature of M."""
    require_runtime()
    arguments = [
        str(plan),
        "--steps",
        str(steps),
        "--dtype",
        dtype,
        "--timeout",
        str(timeout),
        "--seed",
        str(seed),
        "--scale",
        scale,
    ]
    chosen = {
        "--verify": verify,
        "--json": json_output,
        "--timeline": timeline,
        "--debug": debug,
        "--emulate": emulate,
    }
    arguments += [flag for flag, wanted in chosen.items() if wanted]
    machine = cluster if emulate else None
    values = {
        "--layers": layers,
        "--autocast": autocast,
        "--calibrate": calibrate,
        "--trace": trace,
        "--cluster": machine,
    }
    for flag, value in values.items():
        arguments += [] if value is None else [flag, str(value)]
    if model is None or emulate:
        return run_program(_PROGRAM, arguments)
    if _is_graph(model):
        return run_program(_PROGRAM, [*arguments, "--model", str(model)])
    devices = None if cluster is None else load(cluster, Cluster)
    graph = imports.read(model, devices)
    with tempfile.TemporaryDirectory(prefix="octoplan-") as folder:
        file = Path(folder) / "model.json"
        save(file, graph)
        return run_program(_PROGRAM, [*arguments, "--model", str(file)])


def require_runtime() -> None:
    """Refuse what needs torch where it is not installed."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("octoplan_runtime") is None:
        raise InputError("this command needs torch; install it with: pip install 'octoplan[runtime]'")


def _is_graph(path: Path) -> bool:
    document = read_json(path)
    return isinstance(document, dict) and str(document.get("format", "")).startswith(ModelGraph.FORMAT)


def run_program(program: str, arguments: list[str]) -> int:
    """Run a program of the runtime and return its exit code; signals to us go to it."""
    process = subprocess.Popen([sys.executable, "-m", program, *arguments])

    def forward(number: int, frame: Any) -> None:
        process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
