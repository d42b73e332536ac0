"""Random plans against a single process: ``python -m benchmarks.random_plans --plans 300``.

Random partitions, placements with unequal stages, random dependency-feasible orders of fused and split backwards, skip
edges, layers of all kinds: every plan is trained for two steps and evaluated on real processes, and every gradient
is compared with a plain loop over the layers, in float64 to 1e-12 of its largest entry. The tests run a fixed sample of
the same; here the number is free. Exits with 1 if a plan hangs or differs.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from octoplan_runtime.launch import launch_local
from tests.runtime.pipeline_cases import Case, check_cases, random_case


def main() -> int:
    """Run all plans and print one line per number of ranks."""
    parser = argparse.ArgumentParser(description="Compare random plans with a single process.")
    parser.add_argument("--plans", type=int, default=300, help="over all numbers of ranks (default: 300)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4], help="default: 2 3 4")
    parser.add_argument("--seed", type=int, default=0, help="of the first plan (default: 0)")
    options = parser.parse_args()
    share = -(-options.plans // len(options.ranks))
    failed = 0
    for num_ranks in options.ranks:
        start = time.monotonic()
        seeds = range(options.seed, options.seed + share)
        complaints = complaints_about(seeds, num_ranks)
        failed += len(complaints)
        print(
            f"{num_ranks} ranks: {share} plans, {len(complaints)} complaints, {time.monotonic() - start:.0f} s"
        )
        print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if failed else 0


def complaints_about(seeds: Iterable[int], num_ranks: int) -> list[str]:
    """Run the plans of some seeds and return what is wrong with them."""
    with tempfile.TemporaryDirectory(prefix="octoplan-") as folder:
        run = launch_local(check_cases, num_ranks, (functools.partial(float64_cases, list(seeds)), folder))
        if run.exit_code:
            return [f"the run ended with {run.exit_codes}"]
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(num_ranks)]
    return [f"{name}: {line}" for cases in found for name, lines in cases.items() for line in lines]


def float64_cases(seeds: list[int], num_ranks: int) -> list[Case]:
    """Draw the plans; the seeds of the tests' sample are others."""
    drawn = (random_case(1_000_000 * num_ranks + seed, num_ranks) for seed in seeds)
    return [replace(case, dtype=torch.float64) for case in drawn]


if __name__ == "__main__":
    sys.exit(main())
