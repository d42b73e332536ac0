"""``octoplan profile``: has the torch runtime measure layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octoplan.cli import options as flags
from octoplan.cli.run_command import require_runtime, run_program


def profile(
    layers: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="Returns layers, loss and batches, as for run.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the model graph.")
    ],
    microbatches: Annotated[int, typer.Option("--microbatches", help="Into how many a batch is cut.")],
    device_type: Annotated[
        str, typer.Option("--device-type", metavar="NAME", help="Device type of the costs (default: any).")
    ] = "*",
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where to measure.")] = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", metavar="float32|float64|bfloat16")] = "float32",
    autocast: Annotated[
        str | None, typer.Option("--autocast", metavar="bfloat16|float16", help="Mixed precision.")
    ] = None,
    backward: Annotated[
        str, typer.Option("--backward", metavar="split|fused", help="Time I and W, or B and its parts.")
    ] = "split",
    repetitions: Annotated[int, typer.Option("--repetitions", help="Timed runs; the median counts.")] = 15,
    optimizer_tensors: Annotated[
        int, typer.Option("--optimizer-tensors", help="Kept per parameter: 2 for Adam, 1 for momentum.")
    ] = 2,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the model (default MODULE:FUNCTION).")
    ] = None,
    json_output: flags.Json = False,
) -> int:
    """Measure real torch layers: times and sizes of one microbatch, as a model graph to compile a plan for."""
    require_runtime()
    values = {
        "--output": output,
        "--microbatches": microbatches,
        "--device-type": device_type,
        "--device": device,
        "--dtype": dtype,
        "--autocast": autocast,
        "--backward": backward,
        "--repetitions": repetitions,
        "--optimizer-tensors": optimizer_tensors,
        "--name": name,
    }
    arguments = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    return run_program(
        "octoplan_runtime.profiler", [*arguments, *(["--json"] if json_output else []), "--", layers]
    )
