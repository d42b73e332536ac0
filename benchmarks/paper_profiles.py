"""Efficiency and speedup of `octoplan` over balanced 1F1B on the eight public profiles, side by side in one run.

``python benchmarks/paper_profiles.py [--ranks 4 8] [--limits 1f1b:1.0 1f1b:1.5 none] [--seconds 10 30] [--models ...]``

Efficiency is total work / (ranks x makespan). Microbatches: four per rank.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable
from pathlib import Path

import octoplan

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROFILES = sorted(path.stem for path in (EXAMPLES / "profiles").glob("*.json"))
BASELINES = ("1f1b", "interleaved-1f1b", "1f1b:balanced")


def main() -> None:
    """Print one line per model and limit, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[10.0, 30.0], help="one per entry of --ranks"
    )
    parser.add_argument("--limits", nargs="+", default=["1f1b:1.0", "1f1b:1.5", "none"])
    parser.add_argument("--models", nargs="+", default=PROFILES)
    parser.add_argument("--max-stages-per-device", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for num_ranks, seconds in zip(arguments.ranks, arguments.seconds, strict=True):
        for limit in arguments.limits:
            rows = [measure(name, num_ranks, limit, seconds, arguments) for name in arguments.models]
            print(
                f"{num_ranks} ranks, {limit}: efficiency {mean(row[0] for row in rows):.4f}, speedup over "
                f"1f1b:balanced {geometric_mean(row[1] for row in rows):.4f}, "
                f"gap mean {mean(row[2] for row in rows):.2%} "
                f"worst {max(row[2] for row in rows):.2%}",
                flush=True,
            )


def measure(
    name: str, num_ranks: int, limit: str, seconds: float, arguments: argparse.Namespace
) -> tuple[float, float, float]:
    """Return efficiency, speedup over balanced 1F1B, and gap of one cell."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / f"h800x{num_ranks}.json")
    config = EXAMPLES / "configs" / f"{name}.json"
    model = octoplan.import_model(
        EXAMPLES / "profiles" / f"{name}.json", octoplan.ImportOptions(cluster=cluster, config=config)
    )
    microbatches = 4 * num_ranks
    makespans = {}
    for strategy in BASELINES:
        options = octoplan.CompileOptions(microbatches, strategy, memory_limit="none")
        makespans[strategy] = octoplan.compile_plan(model, cluster, options).predicted.makespan_s
    extra = {}
    if arguments.max_stages_per_device is not None:
        extra["max_stages_per_device"] = arguments.max_stages_per_device
    started = time.monotonic()
    options = octoplan.CompileOptions(
        microbatches, memory_limit=limit, time_limit_s=seconds, seed=arguments.seed, **extra
    )
    plan = octoplan.compile_plan(model, cluster, options)
    spent = time.monotonic() - started
    predicted = plan.predicted
    work = microbatches * sum(
        cost.forward_s + cost.backward_input_s + cost.backward_weight_s
        for cost in (layer.cost_on("h800") for layer in model.layers)
        if cost is not None
    )
    efficiency = work / (num_ranks * predicted.makespan_s)
    speedups = {strategy: makespan / predicted.makespan_s for strategy, makespan in makespans.items()}
    gap = predicted.gap or 0.0
    print(
        f"  {name:22s} {limit:9s} {predicted.makespan_s * 1e3:9.2f} ms  efficiency {efficiency:.4f}  "
        + "  ".join(f"{value:.3f}x {strategy}" for strategy, value in speedups.items())
        + f"  gap {gap:.2%} ({predicted.binding_bound})  {len(plan.stages)} stages  {spent:.1f} s",
        flush=True,
    )
    return efficiency, speedups["1f1b:balanced"], gap


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean."""
    numbers = list(values)
    return sum(numbers) / len(numbers)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return math.exp(mean(math.log(value) for value in values))


if __name__ == "__main__":
    main()
