"""How fast simulation, list scheduling and large plans are: ``python benchmarks/simulator.py [--cold]``.

Every figure is measured in this one run, on one core, best of a few repetitions. ``--cold`` compiles the kernels into
an empty cache first, as a fresh installation does.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if "--cold" in sys.argv[1:]:
    os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="octoplan-numba-")

import octoplan_schemas as schemas
from octoplan.checking import check
from octoplan.ordering import OrderedPlan, run_order
from octoplan.plan_writer import PlanInputs, write_plan
from octoplan.problem_builder import build_problem
from octoplan.simulator import replay, simulate_schedule
from octoplan_solvers.list_scheduling import ListScheduler, PolicyRule
from octoplan_solvers.problem import Assignment
from octoplan_solvers.staged import StagedProblem, build_staged

#: (ranks, stages per rank, microbatches)
SIZES = ((64, 2, 1024), (8, 4, 128), (4, 1, 64))
RULE = PolicyRule(urgency=0.5, weight_delay=1.0, alternate=1.5)
REPETITIONS = 5


def main() -> None:
    """Print all figures."""
    print_first_calls()
    print_speeds()
    print_large_plan(*SIZES[0])


def print_first_calls() -> None:
    """Print the seconds of every kernel's first call: compiling, or loading what was compiled before."""
    staged = equal_stages(2, 1, 2, room=4.0)
    print("first calls (compiling, or loading from the cache), seconds:")
    scheduler, seconds = timed(lambda: ListScheduler(staged))
    print(f"  {'reserve tables':34}{seconds:8.2f}")
    schedule, seconds = timed(lambda: scheduler.schedule(RULE.on(staged)))
    print(f"  {'list scheduling':34}{seconds:8.2f}")
    replayed, seconds = timed(lambda: replay(staged, schedule.order))
    print(f"  {'replay (order to programs)':34}{seconds:8.2f}")
    simulation, seconds = timed(lambda: simulate_schedule(replayed.schedule))
    print(f"  {'simulation: times':34}{seconds:8.2f}")
    print(f"  {'simulation: memory':34}{timed(lambda: simulation.memory)[1]:8.2f}")
    print(f"  {'simulation: slack':34}{timed(lambda: simulation.slack_s)[1]:8.2f}")


def print_speeds() -> None:
    """Print operations per second, with and without a memory limit."""
    print("\nmillions of compute ops per second on one core:")
    print(f"  {'ranks x stages x microbatches':31}{'ops':>9} {'room':>9}{'list scheduling':>17}", end="")
    print(f"{'replay':>8}{'simulation':>12}   (of it times, memory)")
    for ranks, stages, microbatches in SIZES:
        for room in (float("inf"), 1.25 * stages * ranks + 2):
            print_speed(ranks, stages, microbatches, room)


def print_speed(ranks: int, stages: int, microbatches: int, room: float) -> None:
    """Print one row."""
    staged = equal_stages(ranks, stages, microbatches, room)
    scheduler, policy = ListScheduler(staged), RULE.on(staged)
    ops = staged.num_ops / 1e6
    listing = best(lambda: scheduler.makespan(policy))
    order = scheduler.schedule(policy).order
    schedule = replay(staged, order).schedule
    replaying = best(lambda: replay(staged, order))
    times = best(lambda: simulate_schedule(schedule))
    both = best(lambda: simulate_schedule(schedule).memory)
    print(
        f"  {f'{ranks} x {stages} x {microbatches}':31}{staged.num_ops:9,} {room:9g}{ops / listing:17.1f}",
        end="",
    )
    print(f"{ops / replaying:8.1f}{ops / both:12.1f}   ({ops / times:.1f}, {ops / (both - times):.1f})")


def print_large_plan(ranks: int, stages: int, microbatches: int) -> None:
    """Print what one large plan takes from order to file and back."""
    model, cluster, assignment = equal_documents(ranks, stages)
    problem = build_problem(model, cluster, num_microbatches=microbatches, max_stages_per_rank=stages)
    staged = build_staged(problem, assignment)
    order, listing = timed(lambda: ListScheduler(staged).schedule(RULE.on(staged)).order)
    inputs = PlanInputs(
        model,
        cluster,
        schemas.PlanJob(
            microbatches=microbatches, backward="split", max_stages_per_device=stages, memory_limit=None
        ),
    )
    path = Path(tempfile.mkdtemp()) / "plan.json"
    ordered, simulating = timed(lambda: simulated(staged, order))
    plan, lowering = timed(lambda: write_plan(inputs, ordered, None, {"strategy": "benchmark"}))
    findings, checking = timed(lambda: check(plan, model, cluster))
    assert not findings, findings
    _, writing = timed(lambda: schemas.save(path, plan))
    size = path.stat().st_size
    read, reading = timed(lambda: schemas.load(path, schemas.Plan))
    assert read == plan
    path.unlink()
    path.parent.rmdir()
    words = sum(len(program) for program in plan.programs)
    print(f"\na plan of {staged.num_ops:,} compute ops, {words:,} words, {size / 1e6:,.1f} MB, seconds:")
    print(f"  {'list scheduling':34}{listing:8.2f}")
    for name, seconds in (
        ("simulate, with memory", simulating),
        ("lower to op words", lowering),
        ("check, simulating once more", checking),
        ("write", writing),
        ("read", reading),
        ("simulate, lower, check, write, read", simulating + lowering + checking + writing + reading),
    ):
        print(f"  {name:34}{seconds:8.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"  peak memory of this process: {peak / 1e9:.2f} GB")


def simulated(staged: StagedProblem, order: Any) -> OrderedPlan:
    """Replay and simulate an order, memory included."""
    ordered = run_order(staged, order)
    ordered.excess_bytes()
    return ordered


def equal_stages(ranks: int, stages: int, microbatches: int, room: float) -> StagedProblem:
    """Return equal stages in a loop, one byte of activation each, and so many bytes per rank."""
    model, cluster, assignment = equal_documents(ranks, stages)
    problem = build_problem(model, cluster, num_microbatches=microbatches, max_stages_per_rank=stages)
    return build_staged(problem, assignment).with_limit(room)


def equal_documents(ranks: int, stages: int) -> tuple[schemas.ModelGraph, schemas.Cluster, Assignment]:
    """Return a model of equal layers, one per stage, a cluster, and the loop placement."""
    layer = {
        "kind": "mlp",
        "cost": {"*": {"forward_s": 1e-3, "backward_input_s": 1.1e-3, "backward_weight_s": 0.9e-3}},
        "state_bytes": 0,
        "activation_bytes": 1,
        "weight_stash_bytes": 0,
        "workspace_bytes": 0,
        "output_bytes": 0,
    }
    layers = [{"name": f"layer{number}", **layer} for number in range(ranks * stages)]
    model = schemas.ModelGraph.from_document(
        {"format": "octoplan.model/1", "name": "equal", "layers": layers}
    )
    kind = {"memory_bytes": 8e10, "peak_flops": 1e15, "memory_bandwidth": 3e12, "op_overhead_s": 0}
    link = {"latency_s": 1e-5, "bandwidth": 1e11}
    cluster = schemas.Cluster.from_document(
        {
            "format": "octoplan.cluster/1",
            "name": "equal",
            "device_types": {"device": kind},
            "devices": [{"name": f"d{rank}", "type": "device", "node": "node"} for rank in range(ranks)],
            "links": {"intra_node": link, "inter_node": link},
        }
    )
    return model, cluster, Assignment.from_sizes([1] * ranks * stages, list(range(ranks)) * stages)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return a call's result and its seconds."""
    begin = time.perf_counter()
    result = call()
    return result, time.perf_counter() - begin


def best(call: Callable[[], Any]) -> float:
    """Return the fewest seconds of a few calls."""
    return min(timed(call)[1] for _ in range(REPETITIONS))


if __name__ == "__main__":
    main()
