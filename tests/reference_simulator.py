"""A second, slow simulator, written from the contract (section 4) alone, to check the fast one against.

A plan becomes a networkx graph of compute ops and messages; one pass in topological order gives every time.
Memory is summed in exact fractions. Nothing here is meant to be quick.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import networkx as nx

from octoplan_schemas import Cluster, Layer, ModelGraph, Plan, parse_word

#: (stage, kind, microbatch)
OpKey = tuple[int, str, int]
#: (source stage, destination stage, microbatch)
TransferKey = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """Times in seconds, sizes in bytes.

    ``ops`` maps an op to its start and end; ``transfers`` maps a message to its start and its arrival.
    ``memory[rank]`` lists ``(time, bytes from then on)`` at every change, the state alone before the first.
    """

    ops: dict[OpKey, tuple[float, float]]
    transfers: dict[TransferKey, tuple[float, float]]
    makespan_s: float
    busy_s: list[float]
    peak_bytes: list[float]
    peak_at_s: list[float]
    memory: list[list[tuple[float, float]]]


def simulate(plan: Plan, model: ModelGraph, cluster: Cluster) -> ReferenceResult:
    """Simulate a valid plan (``check_plan`` finds nothing).

    Raises
    ------
    networkx.NetworkXUnfeasible
        If the ops and messages of the plan wait for each other.
    """
    job = _Job(plan, model, cluster)
    ops, transfers = _times(job)
    starts = [start for start, _ in ops.values()]
    ends = [end for _, end in ops.values()]
    curves = [_memory_curve(job, rank, ops, transfers) for rank in range(plan.num_ranks)]
    peaks = [max(curve, key=lambda point: point[1]) for curve in curves]  # the first of equals
    return ReferenceResult(
        ops=ops,
        transfers=transfers,
        makespan_s=max(ends) - min(starts),
        busy_s=[sum((job.duration(op) for op in order), 0.0) for order in job.orders],
        peak_bytes=[float(size) for _, size in peaks],
        peak_at_s=[time for time, _ in peaks],
        memory=[[(time, float(size)) for time, size in curve] for curve in curves],
    )


class _Job:
    """The plan, its model and its cluster, read the way the contract words it."""

    def __init__(self, plan: Plan, model: ModelGraph, cluster: Cluster) -> None:
        self.plan = plan
        self.cluster = cluster
        self.links = cluster.link_table()
        self.layers = [model.layers[stage.layers[0] : stage.layers[1]] for stage in plan.stages]
        self.rank_of = [stage.rank for stage in plan.stages]
        words = [[parse_word(text) for text in program] for program in plan.programs]
        self.orders: list[list[OpKey]] = [
            [(word.stage, word.kind, word.microbatch) for word in program if word.is_compute]
            for program in words
        ]
        self.all_ops = {op for order in self.orders for op in order}
        self.sends: list[list[TransferKey]] = [
            [(word.stage, word.other_stage, word.microbatch) for word in program if word.is_send]
            for program in words
        ]
        self.edge_bytes = self._edges(model)

    def _edges(self, model: ModelGraph) -> dict[tuple[int, int], float]:
        """Bytes that one microbatch's forward hands from a stage to a later one, by stage pair."""
        edges: dict[tuple[int, int], float] = {
            (stage, stage + 1): self.layers[stage][-1].output_bytes for stage in range(len(self.layers) - 1)
        }
        stage_of = {layer.name: stage for stage, layers in enumerate(self.layers) for layer in layers}
        for skip in model.skips:
            pair = stage_of[skip.from_layer], stage_of[skip.to_layer]
            if pair[0] != pair[1]:
                edges[pair] = edges.get(pair, 0.0) + skip.bytes
        return edges

    def duration(self, op: OpKey) -> float:
        """Sum of the layers' times, plus the overhead of one op."""
        stage, kind, _ = op
        device_type = self.cluster.devices[self.rank_of[stage]].type
        total = 0.0
        for layer in self.layers[stage]:
            cost = layer.cost_on(device_type)
            assert cost is not None, f"{layer.name} has no cost on {device_type}"
            total += {
                "F": cost.forward_s,
                "I": cost.backward_input_s,
                "W": cost.backward_weight_s,
                "B": cost.backward_input_s + cost.backward_weight_s,
            }[kind]
        return total + self.cluster.device_types[device_type].op_overhead_s

    def gradient_op(self, stage: int, microbatch: int) -> OpKey:
        """The op that turns the gradient of a stage's output into that of its input."""
        fused = stage, "B", microbatch
        return fused if fused in self.all_ops else (stage, "I", microbatch)

    def producer(self, transfer: TransferKey) -> OpKey:
        """The op whose end lets a message start."""
        source, destination, m = transfer
        return (source, "F", m) if source < destination else self.gradient_op(source, m)

    def consumer(self, transfer: TransferKey) -> OpKey:
        """The op that a message's arrival lets start."""
        source, destination, m = transfer
        return (destination, "F", m) if source < destination else self.gradient_op(destination, m)

    def size(self, transfer: TransferKey) -> float:
        """Bytes of a message; a gradient is as large as what it is the gradient of."""
        source, destination, _ = transfer
        return self.edge_bytes[min(source, destination), max(source, destination)]

    def hand_overs(self) -> Iterator[TransferKey]:
        """Every dependency between two stages, each way, whether or not it crosses ranks."""
        for early, late in self.edge_bytes:
            for m in range(self.plan.job.microbatches):
                yield early, late, m
                yield late, early, m

    def crosses(self, transfer: TransferKey) -> bool:
        """Whether a hand-over is a message between two ranks."""
        return self.rank_of[transfer[0]] != self.rank_of[transfer[1]]


_Interval = tuple[float, float]


def _times(job: _Job) -> tuple[dict[OpKey, _Interval], dict[TransferKey, _Interval]]:
    """Give every op its start and end, and every message its start and arrival."""
    graph = _graph(job)
    ops: dict[OpKey, _Interval] = {}
    transfers: dict[TransferKey, _Interval] = {}
    pair_free: dict[TransferKey, float] = {}
    for node in nx.topological_sort(graph):
        start = 0.0
        for before in graph.predecessors(node):
            if before[0] == "op":
                start = max(start, ops[before[1]][1])
            elif node[0] == "op":
                start = max(start, transfers[before[1]][1])
            else:
                start = max(start, pair_free[before[1]])
        if node[0] == "op":
            ops[node[1]] = start, start + job.duration(node[1])
        else:
            source, destination, _ = node[1]
            link = job.links[job.rank_of[source]][job.rank_of[destination]]
            pair_free[node[1]] = start + job.size(node[1]) / link.bandwidth
            transfers[node[1]] = start, pair_free[node[1]] + link.latency_s
    return ops, transfers


def _graph(job: _Job) -> nx.DiGraph[Any]:
    """Everything that must come before something else."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for order in job.orders:
        nx.add_path(graph, [("op", op) for op in order])
    for stage, kind, m in job.all_ops:
        if kind in "IB":
            graph.add_edge(("op", (stage, "F", m)), ("op", (stage, kind, m)))
        if kind == "W":
            graph.add_edge(("op", (stage, "I", m)), ("op", (stage, "W", m)))
    for transfer in job.hand_overs():
        producer, consumer = ("op", job.producer(transfer)), ("op", job.consumer(transfer))
        if job.crosses(transfer):
            nx.add_path(graph, [producer, ("message", transfer), consumer])
        else:
            graph.add_edge(producer, consumer)
    for sends in job.sends:
        by_receiver: dict[int, list[TransferKey]] = defaultdict(list)
        for transfer in sends:
            by_receiver[job.rank_of[transfer[1]]].append(transfer)
        for queue in by_receiver.values():
            nx.add_path(graph, [("message", transfer) for transfer in queue])
    return graph


def _memory_curve(
    job: _Job, rank: int, ops: dict[OpKey, _Interval], transfers: dict[TransferKey, _Interval]
) -> list[tuple[float, Fraction]]:
    """Bytes in use from each instant on; what ends at an instant is gone when something else begins there."""
    state = sum((Fraction(layer.state_bytes) for layer in _layers_on(job, rank)), Fraction(0))
    change: dict[float, Fraction] = defaultdict(Fraction)
    change[min(start for start, _ in ops.values())] = Fraction(0)
    for begin, end, size in _holdings(job, rank, ops, transfers):
        change[begin] += size
        change[end] -= size
    curve: list[tuple[float, Fraction]] = []
    held = state
    for time in sorted(change):
        held += change[time]
        curve.append((time, held))
    return curve


def _layers_on(job: _Job, rank: int) -> list[Layer]:
    return [
        layer for stage, layers in enumerate(job.layers) if job.rank_of[stage] == rank for layer in layers
    ]


def _holdings(
    job: _Job, rank: int, ops: dict[OpKey, _Interval], transfers: dict[TransferKey, _Interval]
) -> Iterator[tuple[float, float, Fraction]]:
    """Every ``(from, until, bytes)`` that a rank holds besides its state."""
    for stage, kind, m in job.orders[rank]:
        layers = job.layers[stage]
        activation = _total(layer.activation_bytes for layer in layers)
        retained = _total(layer.retained for layer in layers)
        begin, end = ops[stage, kind, m]
        yield begin, end, max(Fraction(layer.workspace_bytes) for layer in layers)
        if kind == "B":
            yield ops[stage, "F", m][0], end, activation
        if kind == "I":
            yield ops[stage, "F", m][0], end, activation - retained
        if kind == "W":
            yield ops[stage, "F", m][0], end, retained
            yield ops[stage, "I", m][1], end, _total(layer.weight_stash_bytes for layer in layers)
    for transfer, (_, arrival) in transfers.items():
        if job.rank_of[transfer[1]] == rank:
            yield arrival, ops[job.consumer(transfer)][0], Fraction(job.size(transfer))


def _total(sizes: Iterator[float]) -> Fraction:
    return sum((Fraction(size) for size in sizes), Fraction(0))
