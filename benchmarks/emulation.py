"""Predicted against measured makespans on emulated devices: ``python -m benchmarks.emulation [--ranks 4 8]``.

For every number of ranks this machine's own costs are measured first, as ``octoplan run --calibrate`` does. Then a plan
of every public profile runs with ops of 50 ms on average, and the measured makespan is printed beside the predicted.
The last line has the largest error; the aim is 3%.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import octoplan
from benchmarks.runtime import first_devices
from octoplan_runtime import RunOptions, RunReport, run_plan
from octoplan_schemas import Cluster, load, save

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def main() -> None:
    """Print one table per number of ranks."""
    parser = argparse.ArgumentParser(description="Compare predicted with measured makespans.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8], help="default: 4 8")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--strategy", default="octoplan")
    parser.add_argument("--repetitions", type=int, default=3, help="runs per plan; the median counts")
    parser.add_argument("--profiles", nargs="+", help="names of profiles (default: all)")
    options = parser.parse_args()
    errors = [error for num_ranks in options.ranks for error in compare(num_ranks, options)]
    print(f"largest error {max(errors, key=abs):+.2%} of {len(errors)} plans")


def compare(num_ranks: int, options: argparse.Namespace) -> list[float]:
    """Run all profiles on a number of ranks and return their errors."""
    cluster = first_devices(load(EXAMPLES / "clusters" / "h800x4.json", Cluster), num_ranks)
    table = Table(title=f"{num_ranks} ranks, {options.microbatches} microbatches, {options.strategy}")
    for column in ("profile", "measured", "predicted", "error", "of a run", "ops", "messages"):
        table.add_column(column, justify="left" if column == "profile" else "right", no_wrap=True)
    errors = []
    with tempfile.TemporaryDirectory(prefix="octoplan-") as folder:
        machine, plan = Path(folder, "machine.json"), Path(folder, "plan.json")
        for path in sorted((EXAMPLES / "profiles").glob("*.json")):
            if options.profiles and path.stem not in options.profiles:
                continue
            compile_plan(path, cluster, options, plan)
            if not machine.exists():
                run_plan(RunOptions(str(plan), calibrate=str(machine)))
            reports = [run(plan, machine) for _ in range(options.repetitions)]
            own = [report.measured_makespan_s / report.predicted_makespan_s - 1 for report in reports]
            errors.append(median(own))
            table.add_row(path.stem, *row(sorted(reports, key=lambda r: r.measured_makespan_s), own))
    Console(width=120).print(table)
    return errors


def compile_plan(profile: Path, cluster: Cluster, options: argparse.Namespace, plan: Path) -> None:
    """Write the plan of a profile."""
    model = octoplan.import_model(profile, octoplan.ImportOptions(cluster=cluster))
    chosen = octoplan.CompileOptions(
        options.microbatches, options.strategy, memory_limit="none", max_evaluations=2000
    )
    save(plan, octoplan.compile_plan(model, cluster, chosen))


def run(plan: Path, machine: Path) -> RunReport:
    """Run on emulated devices: one step to warm up, and one that is reported."""
    options = RunOptions(str(plan), steps=2, emulate=True, scale=None, cluster=str(machine))
    report = run_plan(options)
    assert report is not None, "this process starts the ranks"
    return report


def row(reports: list[RunReport], errors: list[float]) -> list[str]:
    """Return the cells of the median run."""
    middle = reports[len(reports) // 2]
    late = {kind: value.measured_s - value.predicted_s for kind, value in middle.kinds.items()}
    ops = max(late[kind] for kind in late if "SEND" not in kind)
    messages = max((late[kind] for kind in late if "SEND" in kind), default=0.0)
    return [
        f"{middle.measured_makespan_s:.3f} s",
        f"{middle.predicted_makespan_s:.3f} s",
        f"{median(errors):+.2%}",
        f"{min(errors):+.2%} to {max(errors):+.2%}",
        f"{1e3 * ops:+.2f} ms",
        f"{1e3 * messages:+.2f} ms",
    ]


if __name__ == "__main__":
    main()
