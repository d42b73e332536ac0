"""``python -m octoplan_runtime PLAN --model M``: run a plan with torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from octoplan_runtime.fork_server import fork_server, stop_fork_server, under_torchrun
from octoplan_runtime.options import DTYPE_NAMES, RunOptions
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
        verify=parsed.verify,
        timeout_s=parsed.timeout,
        seed=parsed.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--timeline", action="store_true", help="with --json: add start and end of every op")
    return parser


if __name__ == "__main__":
    exit_code = main()
    if not under_torchrun():
        stop_fork_server()
    sys.exit(exit_code)
