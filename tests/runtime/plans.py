"""Plans for the runtime's tests: random ones, and any order of compute ops turned into rank programs.

Written from the contract alone: nothing here comes from the compiler. A global order of compute ops that respects
dependencies is lowered by walking it; where an op's result is needed on another rank, the SEND is appended to the
sender's program and the RECV to the receiver's at that very moment, which is free of deadlock by construction.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

from octoplan_schemas import Plan

Op = tuple[int, str, int]
Skip = tuple[int, int]


def make_plan(
    bounds: Sequence[tuple[int, int]],
    ranks: Sequence[int],
    order: Iterable[Op],
    num_microbatches: int,
    skips: Iterable[Skip] = (),
) -> Plan:
    """Lower a global order of compute ops ``(stage, kind, microbatch)`` to a plan."""
    feeds, fed = stage_neighbours(bounds, skips)
    programs: list[list[str]] = [[] for _ in range(max(ranks) + 1)]
    for stage, kind, microbatch in order:
        programs[ranks[stage]].append(f"{stage}{kind}{microbatch}")
        receivers = {"F": fed[stage], "W": []}.get(kind, feeds[stage])
        direction = "F" if kind == "F" else "B"
        for other in receivers:
            if ranks[other] != ranks[stage]:
                ends = (f"@{other}", f"@{stage}") if abs(other - stage) > 1 else ("", "")
                programs[ranks[stage]].append(f"{stage}SEND_{direction}{microbatch}{ends[0]}")
                programs[ranks[other]].append(f"{other}RECV_{direction}{microbatch}{ends[1]}")
    return plan_document(bounds, ranks, programs, num_microbatches)


def plan_document(
    bounds: Sequence[tuple[int, int]],
    ranks: Sequence[int],
    programs: Sequence[Sequence[str]],
    num_microbatches: int,
    model_sha256: str = "",
) -> Plan:
    """Write a plan around stages and programs."""
    return Plan.from_document(
        {
            "format": "octoplan.plan/1",
            "model": {"name": "test", "sha256": model_sha256},
            "cluster": {"name": "test", "sha256": ""},
            "job": {
                "microbatches": num_microbatches,
                "backward": "split",
                "max_stages_per_device": len(bounds),
                "memory_limit": None,
            },
            "stages": [
                {"id": stage, "layers": list(layers), "rank": rank}
                for stage, (layers, rank) in enumerate(zip(bounds, ranks, strict=True))
            ],
            "programs": [list(program) for program in programs],
            "predicted": {
                "makespan_s": 1.0,
                "lower_bound_s": None,
                "gap": None,
                "bubble_fraction": 0.0,
                "ranks": [],
            },
            "provenance": {"strategy": "test"},
        }
    )


def stage_neighbours(
    bounds: Sequence[tuple[int, int]], skips: Iterable[Skip]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return for every stage the stages that feed it and the stages that it feeds."""
    stage_of = [stage for stage, (first, end) in enumerate(bounds) for _ in range(first, end)]
    pairs = {(stage, stage + 1) for stage in range(len(bounds) - 1)}
    pairs |= {(stage_of[a], stage_of[b]) for a, b in skips if stage_of[a] != stage_of[b]}
    stages = range(len(bounds))
    feeds = [sorted(a for a, b in pairs if b == stage) for stage in stages]
    fed = [sorted(b for a, b in pairs if a == stage) for stage in stages]
    return feeds, fed


def random_bounds(rng: random.Random, num_layers: int, num_stages: int) -> list[tuple[int, int]]:
    """Cut the layers at random places."""
    cuts = [0, *sorted(rng.sample(range(1, num_layers), num_stages - 1)), num_layers]
    return list(itertools.pairwise(cuts))


def random_placement(rng: random.Random, num_stages: int, num_ranks: int) -> list[int]:
    """Give every rank at least one stage; the rest go anywhere, also next to a neighbour."""
    ranks = [*range(num_ranks), *(rng.randrange(num_ranks) for _ in range(num_stages - num_ranks))]
    rng.shuffle(ranks)
    return ranks


def random_order(
    rng: random.Random,
    bounds: Sequence[tuple[int, int]],
    num_microbatches: int,
    skips: Iterable[Skip],
    split_share: float,
) -> list[Op]:
    """Return a random topological order; each (stage, microbatch) is split with the given probability."""
    feeds, fed = stage_neighbours(bounds, skips)
    stages, microbatches = range(len(bounds)), range(num_microbatches)
    kind = {(s, m): "I" if rng.random() < split_share else "B" for s in stages for m in microbatches}
    needs: dict[Op, set[Op]] = {}
    for (s, m), backward in kind.items():
        needs[s, "F", m] = {(other, "F", m) for other in feeds[s]}
        needs[s, backward, m] = {(s, "F", m), *((other, kind[other, m], m) for other in fed[s])}
        if backward == "I":
            needs[s, "W", m] = {(s, "I", m)}
    order: list[Op] = []
    while needs:
        ready = sorted(op for op, before in needs.items() if not before)
        chosen = rng.choice(ready)
        order.append(chosen)
        del needs[chosen]
        for before in needs.values():
            before.discard(chosen)
    return order


def random_plan(rng: random.Random, num_layers: int, num_ranks: int, skips: Sequence[Skip] = ()) -> Plan:
    """Return a plan with random partition, placement, order and mix of fused and split backward."""
    num_stages = rng.randint(num_ranks, num_layers)
    bounds = random_bounds(rng, num_layers, num_stages)
    ranks = random_placement(rng, num_stages, num_ranks)
    num_microbatches = rng.randint(1, 5)
    split_share = rng.choice((0.0, 0.5, 1.0))
    order = random_order(rng, bounds, num_microbatches, skips, split_share)
    return make_plan(bounds, ranks, order, num_microbatches, skips)


def one_forward_one_backward(
    num_ranks: int, num_microbatches: int, backward: Sequence[str] = ("B",)
) -> list[Op]:
    """Return the 1F1B order with one stage per rank, as a global order.

    Every rank does ``num_ranks - stage`` forwards first; the merge takes the first rank whose next op is ready.
    """
    queues: list[list[Op]] = []
    for stage in range(num_ranks):
        warmup = min(num_ranks - stage, num_microbatches)
        ops: list[Op] = [(stage, "F", m) for m in range(warmup)]
        for m in range(num_microbatches):
            ops += [(stage, kind, m) for kind in backward]
            ops += [(stage, "F", m + warmup)] if m + warmup < num_microbatches else []
        queues.append(ops)
    order: list[Op] = []
    done: set[Op] = set()
    while any(queues):
        for queue in queues:
            if queue and _is_ready(queue[0], done, num_ranks, backward[0]):
                done.add(queue[0])
                order.append(queue.pop(0))
    return order


def _is_ready(op: Op, done: set[Op], num_stages: int, backward: str) -> bool:
    stage, kind, microbatch = op
    if kind == "F":
        return stage == 0 or (stage - 1, "F", microbatch) in done
    return kind == "W" or stage == num_stages - 1 or (stage + 1, backward, microbatch) in done
