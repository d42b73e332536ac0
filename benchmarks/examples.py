"""Compile, check and simulate every example config and profile on every example cluster.

``python benchmarks/examples.py [--seconds 1.5] [--limits none 95%]`` prints one line per plan. Models whose state does
not fit into the memory limit are reported as such, with what is missing; nothing else may fail.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import octoplan

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def main() -> int:
    """Return 0 if every plan is valid and simulates to what it predicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="search time of each plan")
    parser.add_argument("--limits", nargs="+", default=["none", "95%"])
    arguments = parser.parse_args()
    sources = [*sorted(EXAMPLES.glob("configs/*.json")), *sorted(EXAMPLES.glob("profiles/*.json"))]
    counts = {"valid": 0, "does not fit": 0, "WRONG": 0}
    for limit in arguments.limits:
        for cluster in sorted(EXAMPLES.glob("clusters/*.json")):
            for source in sources:
                outcome, text = try_one(source, octoplan.load_cluster(cluster), limit, arguments.seconds)
                counts[outcome] += 1
                print(
                    f"{limit:5s} {cluster.stem:14s} {source.parent.name}/{source.stem:22s} {outcome}: {text}"
                )
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["WRONG"] else 0


def try_one(source: Path, cluster: octoplan.Cluster, limit: str, seconds: float) -> tuple[str, str]:
    """Return the outcome of one cell and a line about it."""
    model = octoplan.import_model(source, octoplan.ImportOptions(cluster=cluster))
    options = octoplan.CompileOptions(2 * cluster.num_ranks, memory_limit=limit, time_limit_s=seconds)
    started = time.monotonic()
    try:
        plan = octoplan.compile_plan(model, cluster, options)
    except octoplan.InfeasibleError as error:
        return "does not fit", str(error)[:160]
    spent = time.monotonic() - started
    findings = octoplan.check(plan, model, cluster)
    makespan = octoplan.simulate(plan, model, cluster).makespan_s
    error = abs(makespan / plan.predicted.makespan_s - 1)
    gap = plan.predicted.gap
    text = f"{makespan:.4f} s, gap {gap:.2%} ({plan.predicted.binding_bound}), {spent:.1f} s, {findings}"
    is_right = not findings and error <= 1e-9 and gap is not None and gap > -1e-9
    return ("valid" if is_right else "WRONG"), text


if __name__ == "__main__":
    sys.exit(main())
