"""How far `octoplan compile` runs over its time limit, from small problems to large ones.

``python -m benchmarks.time_limits [--seconds 5] [--cases NAME ...]``

Each line gives the seconds asked for, those taken (kernels are loaded before; writing the file counts), and the plan.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import octoplan
from octoplan.tuner import warm_up
from octoplan_schemas import Cluster, Device, DeviceType, Layer, Link, Links, ModelGraph, OpCost

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
Case = tuple[ModelGraph, Cluster, int, str]


def published(profile: str, num_ranks: int, limit: str) -> Case:
    """Return a profile with its byte counts, four microbatches per rank."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / f"h800x{num_ranks}.json")
    options = octoplan.ImportOptions(cluster=cluster, config=EXAMPLES / "configs" / f"{profile}.json")
    model = octoplan.import_model(EXAMPLES / "profiles" / f"{profile}.json", options)
    return model, cluster, 4 * num_ranks, limit


def many_microbatches(num_microbatches: int) -> Case:
    """Return jamba-100B in sublayers on 16 ranks."""
    cluster = octoplan.load_cluster(EXAMPLES / "clusters" / "h800x16.json")
    options = octoplan.ImportOptions(cluster=cluster, granularity="sublayer", tensor_parallel=8)
    model = octoplan.import_model(EXAMPLES / "configs" / "jamba-100B.json", options)
    return model, cluster, num_microbatches, "95%"


def random_chain(num_layers: int, num_ranks: int, num_microbatches: int) -> Case:
    """Return layers that all differ."""
    times = np.random.default_rng(0).uniform(0.01, 0.02, size=(num_layers, 3))
    layers = [
        Layer(
            name=f"layer{index}",
            kind="layer",
            cost={"*": OpCost(forward_s=forward, backward_input_s=backward, backward_weight_s=weight)},
            state_bytes=1,
            activation_bytes=1,
            weight_stash_bytes=0,
            workspace_bytes=0,
            output_bytes=1,
        )
        for index, (forward, backward, weight) in enumerate(times.tolist())
    ]
    link = Link(latency_s=1e-5, bandwidth=1e12)
    device = DeviceType(memory_bytes=10**9, peak_flops=1e15, memory_bandwidth=1e12, op_overhead_s=0)
    cluster = Cluster(
        name=f"equal-{num_ranks}",
        device_types={"device": device},
        devices=tuple(Device(name=f"d{rank}", type="device", node="n0") for rank in range(num_ranks)),
        links=Links(intra_node=link, inter_node=link),
    )
    return ModelGraph(name=f"chain-{num_layers}", layers=tuple(layers)), cluster, num_microbatches, "95%"


CASES: dict[str, Callable[[], Case]] = {
    "tiny, with a proof": lambda: random_chain(9, 4, 4),
    "4 ranks": lambda: published("nemotron-nano-v2-9B", 4, "none"),
    "4 ranks, tight memory": lambda: published("nemotron-nano-v2-9B", 4, "1f1b:1.0"),
    "8 ranks, tight memory": lambda: published("jamba-52B", 8, "1f1b:1.0"),
    "16 ranks, 256 microbatches": lambda: random_chain(64, 16, 256),
    "16 ranks, 512 microbatches": lambda: many_microbatches(512),
    "64 ranks, 400 layers": lambda: random_chain(400, 64, 256),
}


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    warm_up()
    for name in arguments.cases:
        model, cluster, microbatches, limit = CASES[name]()
        options = octoplan.CompileOptions(microbatches, memory_limit=limit, time_limit_s=arguments.seconds)
        started = time.monotonic()
        plan = octoplan.compile_plan(model, cluster, options)
        with tempfile.TemporaryDirectory() as folder:
            octoplan.save(Path(folder) / "plan.json", plan)
        taken = time.monotonic() - started
        print(
            f"{name:28s} asked {arguments.seconds:6.1f} s  taken {taken:6.2f} s  makespan "
            f"{plan.predicted.makespan_s:8.3f} s  gap {plan.predicted.gap:.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
