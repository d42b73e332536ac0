"""``python -m octoplan_runtime.profiler MODULE:FUNCTION -o model.json``: measure layers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from octoplan_runtime.command_line import OneLineParser
from octoplan_runtime.options import AUTOCAST_NAMES, DTYPE_NAMES
from octoplan_runtime.profiler.options import BACKWARDS, ProfileOptions
from octoplan_schemas import InputError, ModelGraph, save


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 2 bad input or usage."""
    parsed = _parser().parse_args(arguments)
    try:
        graph = _profile(parsed)
        save(parsed.output, graph)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(_summary(graph) if parsed.json else "\n".join(_table(graph)))
    return 0


def _profile(parsed: argparse.Namespace) -> ModelGraph:
    options = ProfileOptions(
        microbatches=parsed.microbatches,
        device_type=parsed.device_type,
        device=parsed.device,
        dtype=parsed.dtype,
        autocast=parsed.autocast,
        backward=parsed.backward,
        repetitions=parsed.repetitions,
        optimizer_tensors=parsed.optimizer_tensors,
    )
    # Torch takes seconds to load; bad usage is told before.
    import torch

    from octoplan_runtime.profiler.profile import profile_workload
    from octoplan_runtime.workload import import_workload

    # As local ranks run: they share the machine's cores.
    torch.set_num_threads(1)
    workload = import_workload(parsed.layers, "MODULE:FUNCTION")
    name = parsed.name or parsed.layers
    return profile_workload(workload, name, options, _show_progress if sys.stderr.isatty() else None)


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done} of {total} layers", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _summary(graph: ModelGraph) -> str:
    state = sum(layer.state_bytes for layer in graph.layers)
    row = {"name": graph.name, "layers": len(graph.layers), "state_bytes": state, "sha256": graph.sha256()}
    return json.dumps(row)


def _table(graph: ModelGraph) -> list[str]:
    """Return one line per layer."""
    rows = [["layer", "kind", "F", "I", "W", "activations", "output", "state"]]
    for layer in graph.layers:
        (cost,) = layer.cost.values()
        times = (cost.forward_s, cost.backward_input_s, cost.backward_weight_s)
        sizes = (layer.activation_bytes, layer.output_bytes, layer.state_bytes)
        rows.append(
            [
                layer.name,
                layer.kind,
                *(f"{1e3 * t:.3g} ms" for t in times),
                *(f"{size:,.0f} B" for size in sizes),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m octoplan_runtime.profiler",
        description="Measure the layers of a workload and write them as a model graph.",
    )
    parser.add_argument(
        "layers", metavar="MODULE:FUNCTION", help="returns an octoplan_runtime.Workload, as for octoplan run"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="model graph to write")
    parser.add_argument(
        "--microbatches", type=int, required=True, metavar="N", help="into how many a batch is cut"
    )
    parser.add_argument(
        "--device-type", default="*", metavar="NAME", help="device type of the costs (default: any)"
    )
    parser.add_argument("--device", default="cpu", help="torch device to measure on (default: cpu)")
    parser.add_argument("--dtype", choices=DTYPE_NAMES, default="float32", help="default: float32")
    parser.add_argument("--autocast", choices=AUTOCAST_NAMES, help="mixed precision")
    parser.add_argument(
        "--backward", choices=BACKWARDS, default="split", help="time I and W, or B (default: split)"
    )
    parser.add_argument("--repetitions", type=int, default=15, metavar="N", help="timed runs (default: 15)")
    parser.add_argument(
        "--optimizer-tensors",
        type=int,
        default=2,
        metavar="N",
        help="tensors that the optimizer keeps per parameter (default: 2, as Adam)",
    )
    parser.add_argument("--name", help="of the model (default: MODULE:FUNCTION)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
