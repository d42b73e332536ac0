"""Compile a plan for a real heterogeneous model, compare it with what is usual, draw it, and train with it.

Run by ``make demo``. Writes model.json, plan.json, timeline.svg, .png and .html to out/demo.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

import octoplan
from octoplan.cli.console import compile_progress, gibibytes, percent, seconds

HERE = Path(__file__).resolve().parent
MODEL = "nemotron-nano-v2-9B"
STRATEGIES = ("1f1b", "interleaved-1f1b", "1f1b:balanced", "octoplan")
MICROBATCHES = 16

console = Console(highlight=False)


def main() -> int:
    """Run the demo; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of search (default 10)")
    parser.add_argument(
        "--output", type=Path, default=HERE.parent / "out" / "demo", help="folder for the files"
    )
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)

    cluster = octoplan.load_cluster(HERE / "clusters" / "h800x4.json")
    config = HERE / "configs" / f"{MODEL}.json"
    model = octoplan.import_model(
        HERE / "profiles" / f"{MODEL}.json", octoplan.ImportOptions(cluster=cluster, config=config)
    )
    octoplan.save(arguments.output / "model.json", model)
    plans = compile_all(model, cluster, arguments.time_limit)
    print_comparison(plans)
    plan = plans["octoplan"]
    octoplan.save(arguments.output / "plan.json", plan)
    findings = octoplan.check(plan, model, cluster)
    console.print(f"octoplan check: {findings or 'valid'}")
    timeline = octoplan.timeline_of(plan, octoplan.simulate(plan, model, cluster), cluster)
    for ending in ("svg", "png", "html"):
        octoplan.draw_timeline(timeline, arguments.output / f"timeline.{ending}")
    written = ", ".join(sorted(path.name for path in arguments.output.iterdir()))
    console.print(f"written to {arguments.output}: {written}", soft_wrap=True)
    return train(arguments.output)


def compile_all(
    model: octoplan.ModelGraph, cluster: octoplan.Cluster, time_limit_s: float
) -> dict[str, octoplan.Plan]:
    """Compile every strategy under the same memory limit."""
    console.print(f"{model.name}: {len(model.layers)} layers, {cluster.name}, {MICROBATCHES} microbatches")
    plans = {}
    for strategy in STRATEGIES:
        with compile_progress(quiet=False) as (on_progress, should_stop):
            options = octoplan.CompileOptions(
                MICROBATCHES,
                strategy,
                time_limit_s=time_limit_s,
                on_progress=on_progress,
                should_stop=should_stop,
            )
            plans[strategy] = octoplan.compile_plan(model, cluster, options)
    return plans


def print_comparison(plans: dict[str, octoplan.Plan]) -> None:
    """Print one row per strategy."""
    table = Table(title="one optimizer step", title_justify="left")
    table.add_column("strategy", no_wrap=True)
    for column in ("makespan", "speedup", "bubble", "peak memory", "gap"):
        table.add_column(column, justify="right")
    baseline = plans["1f1b"].predicted.makespan_s
    for strategy, plan in plans.items():
        predicted = plan.predicted
        table.add_row(
            strategy,
            seconds(predicted.makespan_s),
            f"{baseline / predicted.makespan_s:.2f}x",
            percent(predicted.bubble_fraction),
            gibibytes(max(rank.peak_bytes for rank in predicted.ranks)),
            percent(predicted.gap),
        )
    console.print(table)


def train(folder: Path) -> int:
    """Run the plan with torch on a miniature of the model, and compare with a single process."""
    console.print(
        "training a miniature with this plan: 4 processes, 3 optimizer steps, against a single process"
    )
    command = [sys.executable, "-m", "octoplan.cli", "run", "plan.json", "--model", "model.json"]
    return subprocess.run([*command, "--steps", "3", "--verify"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
