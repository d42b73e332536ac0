"""Heterogeneous stages cut into slices that may go anywhere: two published problems, at two memory limits.

``python -m benchmarks.slices [--seconds 30] [--max-evaluations N] [--cases A2 B4]``

F = I, transfers cost nothing, a slice holds its share of its stage's one unit of activation, and a rank has room for
P or 2P units. Each line gives the makespan, the certified bound, the work per rank, and the figure to beat.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import octoplan
from octoplan_schemas import Cluster, Device, DeviceType, Layer, Link, Links, ModelGraph, OpCost

#: Bytes of one unit of activation.
_UNIT = 1_000_000
_PROBLEMS = {
    "A": (16, (1.0, 1.6, 0.8, 2.2), (0.9, 1.2, 0.8, 1.4)),
    "B": (32, (1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 3.0), (0.8, 0.8, 1.6, 0.8, 0.8, 1.6, 0.8, 2.4)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, how many slices a stage is cut into, the room per rank in units of P, and the figure to beat."""

    problem: str
    slices: int
    room: int
    best_known: float


CASES = {
    "A2": Case("A", 2, 1, 72.1),
    "B2": Case("B", 2, 1, 183.7),
    "A4": Case("A", 4, 1, 65.7),
    "B4": Case("B", 4, 1, 153.6),
    "A4x2": Case("A", 4, 2, 62.8),
    "B4x2": Case("B", 4, 2, 138.2),
}


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--max-evaluations", type=int, default=None)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.cases:
        run(name, arguments)


def run(name: str, arguments: argparse.Namespace) -> None:
    """Compile one case and print its line."""
    case = CASES[name]
    microbatches, forward, weight = _PROBLEMS[case.problem]
    num_ranks = len(forward)
    started = time.monotonic()
    options = octoplan.CompileOptions(
        microbatches,
        max_stages_per_device=2 * case.slices,
        memory_limit=case.room * num_ranks * _UNIT,
        time_limit_s=arguments.seconds,
        max_evaluations=arguments.max_evaluations,
        seed=arguments.seed,
    )
    predicted = octoplan.compile_plan(sliced_model(case), free_cluster(num_ranks), options).predicted
    work = microbatches * sum(2 * one + other for one, other in zip(forward, weight, strict=True)) / num_ranks
    print(
        f"{name:5s} makespan {predicted.makespan_s:8.3f}  to beat {case.best_known:6.1f}  "
        f"bound {predicted.lower_bound_s:8.3f} ({predicted.binding_bound})  work per rank {work:6.1f}  "
        f"{time.monotonic() - started:.1f} s",
        flush=True,
    )


def sliced_model(case: Case) -> ModelGraph:
    """Return the model of a case: one layer per slice, times in seconds."""
    _, forward, weight = _PROBLEMS[case.problem]
    layers = tuple(
        Layer(
            name=f"stage{stage}.slice{index}",
            kind="slice",
            cost={
                "*": OpCost(
                    forward_s=forward[stage] / case.slices,
                    backward_input_s=forward[stage] / case.slices,
                    backward_weight_s=weight[stage] / case.slices,
                )
            },
            state_bytes=0,
            activation_bytes=_UNIT // case.slices,
            weight_stash_bytes=0,
            workspace_bytes=0,
            output_bytes=0,
        )
        for stage in range(len(forward))
        for index in range(case.slices)
    )
    return ModelGraph(name=f"slices-{case.problem}", layers=layers, source="table")


def free_cluster(num_ranks: int) -> Cluster:
    """Return equal devices with links that cost nothing."""
    link = Link(latency_s=0, bandwidth=1e15)
    device = DeviceType(memory_bytes=10**12, peak_flops=1e15, memory_bandwidth=1e12, op_overhead_s=0)
    devices = tuple(Device(name=f"d{rank}", type="device", node="n0") for rank in range(num_ranks))
    links = Links(intra_node=link, inter_node=link)
    return Cluster(name=f"free-{num_ranks}", device_types={"device": device}, devices=devices, links=links)


if __name__ == "__main__":
    main()
