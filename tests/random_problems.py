"""Random jobs and random plans for them, reproducible from a seed.

A job is a model, a cluster, a partition with its placement, and a number of microbatches: everything but the order.
Half of the jobs have times and sizes that floats add up exactly (so that events coincide, and implementations agree
to the bit), the others have real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from octoplan.problem_builder import build_problem
from octoplan_schemas import Cluster, ModelGraph, Plan, transfer_words
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import StagedProblem, build_staged

#: (stage, kind, microbatch)
OpKey = tuple[int, str, int]
#: (source stage, destination stage, microbatch)
MessageKey = tuple[int, int, int]
Node = OpKey | MessageKey


@dataclass(frozen=True)
class RandomJob:
    """What a plan is made for."""

    model: ModelGraph
    cluster: Cluster
    assignment: Assignment
    num_microbatches: int
    #: True if all sums of times and sizes are exact in floats.
    is_exact: bool

    def problem(self, *, split_backward: bool = True) -> PipelineProblem:
        """Return the arrays of the job, without memory limits."""
        return build_problem(
            self.model,
            self.cluster,
            num_microbatches=self.num_microbatches,
            split_backward=split_backward,
            max_stages_per_rank=self.assignment.num_stages,
        )

    def staged(self, *, split_backward: bool = True) -> StagedProblem:
        """Return the staged arrays of the job, without memory limits."""
        return build_staged(self.problem(split_backward=split_backward), self.assignment)

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs of stages that hand tensors over, earlier first."""
        staged = self.staged()
        return list(zip(staged.edge_source.tolist(), staged.edge_destination.tolist(), strict=True))


def random_job(
    random: Random,
    *,
    max_ranks: int = 4,
    max_stages_per_rank: int = 3,
    max_microbatches: int = 4,
    is_exact: bool | None = None,
) -> RandomJob:
    """Draw a job."""
    exact = random.random() < 0.5 if is_exact is None else is_exact
    num_ranks = random.randint(1, max_ranks)
    ranks = random_placement(random, num_ranks, max_stages_per_rank)
    sizes = [random.choice([1, 1, 1, 2, 3]) for _ in ranks]
    cluster = random_cluster(random, num_ranks, exact)
    return RandomJob(
        random_model(random, sum(sizes), list(cluster.device_types), exact),
        cluster,
        Assignment.from_sizes(sizes, ranks),
        random.randint(1, max_microbatches),
        exact,
    )


def random_placement(random: Random, num_ranks: int, max_stages_per_rank: int) -> list[int]:
    """Draw a rank for every stage: loops, zigzags and any other, unequal numbers of stages included."""
    rounds = random.randint(1, max_stages_per_rank)
    loop = list(range(num_ranks))
    kind = random.randrange(3)
    if kind == 0:
        return loop * rounds
    if kind == 1:
        return [rank for number in range(rounds) for rank in (loop if number % 2 == 0 else loop[::-1])]
    extra = [random.randrange(num_ranks) for _ in range(random.randint(0, (rounds - 1) * num_ranks))]
    return random.sample(loop + extra, num_ranks + len(extra))


def random_cluster(random: Random, num_ranks: int, is_exact: bool) -> Cluster:
    """Draw devices of up to two types in up to two nodes, and links with exceptions."""
    amount = _amounts(random, is_exact)

    def link() -> dict[str, float]:
        bandwidth = 2.0 ** random.randint(-1, 6) if is_exact else random.uniform(0.5, 64.0)
        return {"latency_s": random.choice([0.0, amount(1.0)]), "bandwidth": bandwidth}

    types = {
        name: {
            "memory_bytes": 1e12,
            "peak_flops": 1e12,
            "memory_bandwidth": 1e12,
            "op_overhead_s": random.choice([0.0, 0.0, amount(0.5)]),
        }
        for name in ("slow", "fast")[: random.randint(1, 2)]
    }
    devices = [
        {
            "name": f"device{rank}",
            "type": random.choice(list(types)),
            "node": f"node{random.randint(0, 1)}",
        }
        for rank in range(num_ranks)
    ]
    pairs = [
        {"from": a, "to": f"device{b}", **link()}
        for a in range(num_ranks)
        for b in range(num_ranks)
        if a != b and random.random() < 0.15
    ]
    links = {"intra_node": link(), "inter_node": link(), "pairs": pairs}
    return Cluster.from_document(
        {
            "format": "octoplan.cluster/1",
            "name": "random",
            "device_types": types,
            "devices": devices,
            "links": links,
        }
    )


def random_model(random: Random, num_layers: int, device_types: list[str], is_exact: bool) -> ModelGraph:
    """Draw layers, some of whose costs and sizes are zero, and skip edges."""
    amount = _amounts(random, is_exact)
    has_memory = random.random() < 0.9
    share_of_zeros = random.choice([0.0, 0.1, 0.5])

    def value(largest: float) -> float:
        return 0.0 if random.random() < share_of_zeros else amount(largest)

    def size(largest: int) -> int:
        return 0 if not has_memory or random.random() < 0.3 else random.randint(0, largest)

    def cost() -> dict[str, float]:
        return {name: value(3.0) for name in ("forward_s", "backward_input_s", "backward_weight_s")}

    def layer(number: int) -> dict[str, Any]:
        activation = size(20)
        entry = {
            "name": f"layer{number}",
            "kind": "any",
            "cost": random.choice([{"*": cost()}, {"*": cost(), device_types[0]: cost()}]),
            "state_bytes": size(100),
            "activation_bytes": activation,
            "weight_stash_bytes": size(10),
            "workspace_bytes": size(15),
            "output_bytes": size(8),
        }
        if random.random() < 0.5:
            entry["retained_bytes"] = random.randint(0, activation)
        return entry

    layers = [layer(number) for number in range(num_layers)]
    far = [(a, b) for a in range(num_layers) for b in range(a + 1, num_layers)]
    skips = [
        {"from": f"layer{a}", "to": f"layer{b}", "bytes": size(8)}
        for a, b in random.sample(far, min(len(far), random.choice([0, 0, 1, 3])))
    ]
    return ModelGraph.from_document(
        {"format": "octoplan.model/1", "name": "random", "layers": layers, "skips": skips}
    )


def _amounts(random: Random, is_exact: bool) -> Callable[[float], float]:
    """Return a source of amounts up to a largest one; exact ones are multiples of 1/8."""

    def amount(largest: float) -> float:
        return random.randint(1, int(largest * 8)) / 8 if is_exact else random.uniform(0.01, largest)

    return amount


def random_programs(job: RandomJob, random: Random) -> list[list[str]]:
    """Draw programs that run: any order of ops and of messages that dependencies allow.

    Ops and messages are executed one after another in a random order; a rank's program is what it takes part in. So
    messages of a rank pair leave in any order, not only in that of their producers. Backwards are fused or split,
    each by itself; microbatches come in any order.
    """
    split_share = random.choice([0.0, 0.5, 1.0])
    eager_messages = random.choice([0.0, 1.0])
    ranks = job.assignment.ranks
    graph = _Dependencies(job, random, split_share)
    programs: list[list[str]] = [[] for _ in range(job.cluster.num_ranks)]
    ready = graph.first()
    while ready:
        messages = [position for position, node in enumerate(ready) if _is_message(node)]
        if messages and random.random() < eager_messages:
            node = ready.pop(random.choice(messages))
        else:
            node = ready.pop(random.randrange(len(ready)))
        if _is_message(node):
            source, destination, microbatch = node
            direction = "F" if source < destination else "B"
            send, recv = transfer_words(source, destination, direction, microbatch)
            programs[ranks[source]].append(send)
            programs[ranks[destination]].append(recv)
        else:
            stage, kind, microbatch = node
            programs[ranks[stage]].append(f"{stage}{kind}{microbatch}")
        ready += graph.release(node)
    return programs


def _is_message(node: Node) -> bool:
    return not isinstance(node[1], str)


class _Dependencies:
    """What each op and each message still waits for."""

    def __init__(self, job: RandomJob, random: Random, split_share: float) -> None:
        self._waits: dict[Node, int] = {}
        self._successors: dict[Node, list[Node]] = {}
        backward: dict[tuple[int, int], OpKey] = {}
        for stage in range(job.assignment.num_stages):
            for m in range(job.num_microbatches):
                is_split = random.random() < split_share
                backward[stage, m] = (stage, "I" if is_split else "B", m)
                self._chain((stage, "F", m), backward[stage, m], *([(stage, "W", m)] if is_split else []))
        ranks = job.assignment.ranks
        for early, late in job.edges:
            crosses = ranks[early] != ranks[late]
            for m in range(job.num_microbatches):
                self._chain((early, "F", m), *([(early, late, m)] if crosses else []), (late, "F", m))
                self._chain(backward[late, m], *([(late, early, m)] if crosses else []), backward[early, m])

    def _chain(self, *nodes: Node) -> None:
        for node in nodes:
            self._waits.setdefault(node, 0)
            self._successors.setdefault(node, [])
        for before, after in pairwise(nodes):
            self._successors[before].append(after)
            self._waits[after] += 1

    def first(self) -> list[Node]:
        """Return what waits for nothing."""
        return [node for node, count in self._waits.items() if count == 0]

    def release(self, node: Node) -> list[Node]:
        """Return what waited for this node last."""
        free = []
        for successor in self._successors[node]:
            self._waits[successor] -= 1
            if self._waits[successor] == 0:
                free.append(successor)
        return free


def plan_of(job: RandomJob, programs: list[list[str]] | tuple[tuple[str, ...], ...]) -> Plan:
    """Return the plan document with these programs and an empty prediction."""
    return Plan.from_document(
        {
            "format": "octoplan.plan/1",
            "model": {"name": job.model.name, "sha256": ""},
            "cluster": {"name": job.cluster.name, "sha256": ""},
            "job": {
                "microbatches": job.num_microbatches,
                "backward": "split",
                "max_stages_per_device": job.assignment.num_stages,
                "memory_limit": None,
            },
            "stages": [
                {"id": stage, "layers": list(layers), "rank": rank}
                for stage, (layers, rank) in enumerate(
                    zip(job.assignment.boundaries, job.assignment.ranks, strict=True)
                )
            ],
            "programs": [list(program) for program in programs],
            "predicted": {
                "makespan_s": 0,
                "lower_bound_s": None,
                "gap": None,
                "bubble_fraction": 0,
                "ranks": [],
            },
            "provenance": {"strategy": "random"},
        }
    )


def numpy_random(random: Random) -> np.random.Generator:
    """Return a numpy generator that continues a seed."""
    return np.random.default_rng(random.randrange(2**32))
