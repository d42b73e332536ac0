"""``python -m octoplan_runtime PLAN --model M``: run a plan with torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from octoplan_runtime.command_line import OneLineParser
from octoplan_runtime.fork_server import fork_server, stop_fork_server, under_torchrun
from octoplan_runtime.options import AUTOCAST_NAMES, DTYPE_NAMES, RunOptions
from octoplan_schemas import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed or differs, 2 bad input or usage."""
    parsed = _parser().parse_args(arguments)
    if not under_torchrun():
        fork_server()
    # Torch takes seconds to load; meanwhile the fork server loads it too.
    from octoplan_runtime.run import RunError, run_plan

    try:
        report = run_plan(_options(parsed))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except RunError as failed:
        return failed.exit_code
    if report is None:
        return 0
    print(report.to_json(timeline=parsed.timeline) if parsed.json else "\n".join(report.lines()))
    return 1 if report.gradients_match is False else 0


def _options(parsed: argparse.Namespace) -> RunOptions:
    return RunOptions(
        plan=parsed.plan,
        model=parsed.model,
        layers=parsed.layers,
        steps=parsed.steps,
        dtype=parsed.dtype,
        autocast=parsed.autocast,
        verify=parsed.verify,
        timeout_s=parsed.timeout,
        seed=parsed.seed,
        debug=parsed.debug,
        emulate=parsed.emulate,
        scale=parsed.scale,
        cluster=parsed.cluster,
        calibrate=parsed.calibrate,
        trace=parsed.trace,
    )


def _scale(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0, or auto")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="python -m octoplan_runtime",
        description="Run a plan with torch: one local process per rank, or this rank under torchrun.",
    )
    parser.add_argument("plan", metavar="PLAN", help="plan file (octoplan.plan/1)")
    parser.add_argument(
        "--model", metavar="FILE", help="model graph (octoplan.model/1); builds a miniature of it"
    )
    parser.add_argument(
        "--layers", metavar="MODULE:FUNCTION", help="returns an octoplan_runtime.Workload to train"
    )
    parser.add_argument("--steps", type=int, default=1, metavar="N", help="optimizer steps (default: 1)")
    parser.add_argument("--dtype", choices=DTYPE_NAMES, default="float32", help="default: float32")
    parser.add_argument(
        "--autocast", choices=AUTOCAST_NAMES, help="mixed precision: compute in this type, train in float32"
    )
    parser.add_argument("--verify", action="store_true", help="compare losses and gradients with one process")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="longest that a rank may stay in one op (default: 60)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the miniature's parameters and data (default: 0)"
    )
    parser.add_argument("--debug", action="store_true", help="label every message and check it on arrival")
    parser.add_argument(
        "--emulate", action="store_true", help="sleep for the plan's times; nothing is trained"
    )
    parser.add_argument(
        "--scale",
        type=_scale,
        default=1.0,
        metavar="S",
        help="with --emulate: factor on the plan's times; auto makes the mean op 50 ms (default: 1)",
    )
    parser.add_argument(
        "--cluster",
        metavar="FILE",
        help="with --emulate: this machine as --calibrate wrote it; its own costs join the prediction",
    )
    parser.add_argument(
        "--calibrate",
        metavar="FILE",
        help="measure the cost of an op, latency and bandwidth here, and write them as a cluster file",
    )
    parser.add_argument("--trace", metavar="FILE", help="write the measured times of the last step")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--timeline", action="store_true", help="with --json: add start and end of every op")
    return parser


if __name__ == "__main__":
    exit_code = main()
    if not under_torchrun():
        stop_fork_server()
    sys.exit(exit_code)
