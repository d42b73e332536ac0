"""What a plan loses when it is compiled for an engine: makespans of every target beside baselines and the free plan.

``python benchmarks/targets.py [--ranks 4] [--max-evaluations 3000] [--limit none] [--models ...]`` prints a table in
Markdown: milliseconds, on the public profiles, with four microbatches per rank.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import octoplan

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROFILES = sorted(path.stem for path in (EXAMPLES / "profiles").glob("*.json"))
COLUMNS: dict[str, dict[str, Any]] = {
    "`1f1b:balanced`": {"strategy": "1f1b:balanced"},
    "`interleaved-1f1b:balanced`": {"strategy": "interleaved-1f1b:balanced"},
    "`zb-v:balanced`": {"strategy": "zb-v:balanced"},
    "`megatron`": {"target": "megatron"},
    "`torchtitan`": {"target": "torchtitan"},
    "`torch`": {"target": "torch"},
    "`octoplan`": {},
}


def main() -> None:
    """Print one row per model, and the geometric mean of the speedups over the first column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--max-evaluations", type=int, default=3000)
    parser.add_argument("--limit", default="none")
    parser.add_argument("--models", nargs="+", default=PROFILES)
    arguments = parser.parse_args()
    print_row(["model", *COLUMNS])
    print_row(["---"] * (len(COLUMNS) + 1))
    speedups = []
    for name in arguments.models:
        makespans = [makespan_s(name, options, arguments) for options in COLUMNS.values()]
        print_row([name, *(f"{value * 1e3:,.1f}" for value in makespans)])
        speedups.append([makespans[0] / value for value in makespans])
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*speedups, strict=True)]
    print_row(["speedup", *(f"{mean:.3f}x" for mean in means)])


def makespan_s(name: str, options: dict[str, Any], arguments: argparse.Namespace) -> float:
    """Compile one cell; the limit holds for what is searched, baselines have none."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / f"h800x{arguments.ranks}.json")
    model = octoplan.import_model(
        EXAMPLES / "profiles" / f"{name}.json",
        octoplan.ImportOptions(cluster=cluster, config=EXAMPLES / "configs" / f"{name}.json"),
    )
    limit = "none" if "strategy" in options else arguments.limit
    chosen = octoplan.CompileOptions(
        4 * arguments.ranks, memory_limit=limit, max_evaluations=arguments.max_evaluations, **options
    )
    return octoplan.compile_plan(model, cluster, chosen).predicted.makespan_s


def print_row(cells: Sequence[str]) -> None:
    """Print one line of the table."""
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
