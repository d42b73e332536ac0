"""`octoplan` against the best of all baselines at equal memory, where published methods are strongest and weakest.

``python benchmarks/best_baseline.py [--cases uniform mixed] [--seconds 30] [--max-evaluations N] [--models ...]``

``uniform``: the body of llama3-70B alone, 80 layers and 77, which no number of ranks divides, at three memory limits.
``mixed``: configs on four fast and four slow devices (h800x4-a100x4), 32 microbatches, without memory limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import octoplan
from octoplan.baselines import BASELINES
from octoplan_schemas import Cluster, ModelGraph

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CONFIGS = sorted(path.stem for path in (EXAMPLES / "configs").glob("*.json"))
LIMITS = ("1f1b:1.0", "1f1b:1.5", "none")


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=("uniform", "mixed"), default=["uniform", "mixed"])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--max-evaluations", type=int, default=None)
    parser.add_argument("--models", nargs="+", default=CONFIGS, help="for mixed")
    arguments = parser.parse_args()
    if "uniform" in arguments.cases:
        for name, model, cluster in uniform_models():
            for limit in LIMITS:
                compare(f"{name} {limit}", model, cluster, limit, arguments)
    if "mixed" in arguments.cases:
        cluster = octoplan.load_cluster(EXAMPLES / "clusters" / "h800x4-a100x4.json")
        options = octoplan.ImportOptions(cluster=cluster, sequence_length=4096)
        for name in arguments.models:
            model = octoplan.import_model(EXAMPLES / "configs" / f"{name}.json", options)
            compare(name, model, cluster, "none", arguments)


def uniform_models() -> Iterator[tuple[str, ModelGraph, Cluster]]:
    """Yield name, model and cluster of the uniform cases."""
    config = EXAMPLES / "configs" / "llama3-70B.json"
    for num_ranks in (4, 8):
        cluster = octoplan.load_cluster(EXAMPLES / "clusters" / f"h800x{num_ranks}.json")
        options = octoplan.ImportOptions(cluster=cluster, config=config)
        model = octoplan.import_model(EXAMPLES / "profiles" / "llama3-70B.json", options)
        for num_layers in (80, 77):
            body = model.model_copy(update={"layers": model.layers[1 : 1 + num_layers], "tied": ()})
            yield f"{num_layers} layers on {num_ranks} ranks", body, cluster


def compare(
    name: str, model: ModelGraph, cluster: Cluster, limit: str, arguments: argparse.Namespace
) -> None:
    """Compile with `octoplan` and with every baseline, and print the line."""
    microbatches = 4 * len(cluster.devices)
    baselines = {}
    for method in BASELINES:
        for partition in ("uniform", "balanced"):
            strategy = f"{method}:{partition}"
            options = octoplan.CompileOptions(microbatches, strategy, memory_limit=limit)
            try:
                plan = octoplan.compile_plan(model, cluster, options)
            except (octoplan.InfeasibleError, octoplan.InputError):
                continue  # too large for the limit, or sizes that the method does not admit
            baselines[strategy] = plan.predicted.makespan_s
    best = min(baselines, key=lambda strategy: baselines[strategy])
    options = octoplan.CompileOptions(
        microbatches,
        memory_limit=limit,
        time_limit_s=arguments.seconds,
        max_evaluations=arguments.max_evaluations,
    )
    predicted = octoplan.compile_plan(model, cluster, options).predicted
    print(
        f"{name:34s} {predicted.makespan_s * 1e3:10.2f} ms, gap {predicted.gap or 0.0:6.2%} "
        f"({predicted.binding_bound}); {baselines[best] / predicted.makespan_s:.3f}x {best} "
        f"{baselines[best] * 1e3:.2f} ms; "
        f"{baselines.get('1f1b:balanced', float('nan')) / predicted.makespan_s:.3f}x 1f1b:balanced",
        flush=True,
    )


if __name__ == "__main__":
    main()
