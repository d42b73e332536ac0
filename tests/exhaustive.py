"""The true optimum of tiny problems: every partition, every placement, every order.

Written from the contract (section 4) alone, to hold bounds, solvers and the compiler against. Nothing here is shared
with them but the files' schemas; the orders of one partition and placement are in `tests.exhaustive_orders`.

What is searched: every cut of the layers into stages and every rank for each stage, neighbours on one rank included,
where every rank holds at least one stage and none more than allowed; and every order of compute ops and of transfers.
A fused job has B ops only; a split job chooses between B and I with W for every stage and microbatch.

What is proved: `Optimum.lower_s` leaves received tensors (and memory during ops of no length) out of account, and
`Optimum.makespan_s` belongs to a plan that fits by every byte. They are equal unless received tensors decide; then the
plan is the best of those that run microbatches in order. Tied layers count once each, as if they were not tied.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any, Literal

import numpy as np

from octoplan_schemas import Cluster, Constraint, ModelGraph, Plan, transfer_words
from tests.exhaustive_orders import (
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
    MIXED,
    SEND,
    SPLIT,
    Job,
    new_memory,
    search_all,
    stage,
    unpack,
)

#: Nodes that one partition and placement may take before the search gives up on it.
MAX_NODES = 20_000_000
MAX_NODES_BY_THE_BYTE = 1_000_000
_LETTERS = "FIWB"
_MEMORY = new_memory()


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best plan, in seconds of makespan.

    ``lower_s``: no plan is shorter. ``makespan_s``, ``plan``: a plan that fits, None if none was found. ``num_nodes``:
    nodes of the search tree.
    """

    lower_s: float
    makespan_s: float | None
    plan: Plan | None
    num_assignments: int
    num_nodes: int

    @property
    def is_exact(self) -> bool:
        """Whether the plan is proved optimal."""
        return self.makespan_s is not None and self.makespan_s <= self.lower_s * (1 + 1e-9)


def optimum(
    model: ModelGraph,
    cluster: Cluster,
    *,
    num_microbatches: int,
    backward: Literal["split", "fused"] = "split",
    max_stages_per_device: int = 1,
    memory_limit_bytes: Sequence[float] | None = None,
    constraints: Sequence[Constraint] = (),
) -> float | None:
    """Return the optimal makespan in seconds, None if no plan fits; see `find_optimum`."""
    found = find_optimum(
        model,
        cluster,
        num_microbatches=num_microbatches,
        backward=backward,
        max_stages_per_device=max_stages_per_device,
        memory_limit_bytes=memory_limit_bytes,
        constraints=constraints,
    )
    return None if found is None else found.makespan_s


def find_optimum(
    model: ModelGraph,
    cluster: Cluster,
    *,
    num_microbatches: int,
    backward: Literal["split", "fused"] = "split",
    max_stages_per_device: int = 1,
    memory_limit_bytes: Sequence[float] | None = None,
    dynamic_limit_bytes: float = math.inf,
    constraints: Sequence[Constraint] = (),
    allow_mixed: bool = True,
) -> Optimum | None:
    """Search everything.

    Parameters
    ----------
    memory_limit_bytes:
        Limit of each rank's whole peak; None: no limit.
    dynamic_limit_bytes:
        Limit of any rank's peak without its state.
    constraints:
        Of section 7, all but ``max_in_flight``.
    allow_mixed:
        False: a split job has no B.

    Returns
    -------
    Optimum or None
        None if no plan fits.
    """
    num_ranks = cluster.num_ranks
    limits = [math.inf] * num_ranks if memory_limit_bytes is None else list(memory_limit_bytes)
    mode = FUSED if backward == "fused" else MIXED if allow_mixed else SPLIT
    job = _job(model, cluster, num_microbatches, limits, dynamic_limit_bytes, mode)
    allows = _filter(model, constraints, num_ranks)
    twins = [] if constraints else _twins(job)
    rows = [
        row
        for row in _assignments(len(model.layers), num_ranks, max_stages_per_device, twins)
        if allows(*row)
    ]
    if not rows:
        return None
    ends, ranks, num_stages = _table(rows, len(model.layers))
    lower, row, path, nodes, covered = search_all(
        job, ends, ranks, num_stages, _MEMORY, False, math.inf, 0.0, MAX_NODES
    )
    assert covered, "the problem is too large"
    if row < 0:
        return None
    sequence = _Sequence(model, job, rows[row], unpack(path), max_stages_per_device)
    if sequence.fits:
        return Optimum(lower, sequence.makespan_s, sequence.plan(cluster), len(rows), nodes)
    _, row, path, more, _ = search_all(
        job, ends, ranks, num_stages, _MEMORY, True, math.inf, lower, MAX_NODES_BY_THE_BYTE
    )
    if row < 0:
        return Optimum(lower, None, None, len(rows), nodes + more)
    sequence = _Sequence(model, job, rows[row], unpack(path), max_stages_per_device)
    assert sequence.fits
    return Optimum(lower, sequence.makespan_s, sequence.plan(cluster), len(rows), nodes + more)


#: Ends of the stages, and their ranks.
_Row = tuple[tuple[int, ...], tuple[int, ...]]


def _job(
    model: ModelGraph,
    cluster: Cluster,
    num_microbatches: int,
    limits: list[float],
    dynamic_limit: float,
    mode: int,
) -> Job:
    costs = [[layer.cost_on(device.type) for layer in model.layers] for device in cluster.devices]
    types = [cluster.device_types[device.type] for device in cluster.devices]
    links = cluster.link_table()
    position = {layer.name: index for index, layer in enumerate(model.layers)}
    skips = [(position[skip.from_layer], position[skip.to_layer]) for skip in model.skips]

    def sizes(field: str) -> Any:
        return np.array([float(getattr(layer, field)) for layer in model.layers])

    return Job(
        seconds=np.array(
            [[(c.forward_s, c.backward_input_s, c.backward_weight_s) for c in row if c] for row in costs],
            dtype=np.float64,
        ),
        overhead=np.array([float(kind.op_overhead_s) for kind in types]),
        state=sizes("state_bytes"),
        activation=sizes("activation_bytes"),
        retained=sizes("retained"),
        stash=sizes("weight_stash_bytes"),
        workspace=sizes("workspace_bytes"),
        output=sizes("output_bytes"),
        skips=np.array(skips, dtype=np.int64).reshape(-1, 2),
        skip_bytes=np.array([float(skip.bytes) for skip in model.skips]),
        latency=np.array([[float(link.latency_s) for link in row] for row in links]),
        bandwidth=np.array([[float(link.bandwidth) for link in row] for row in links]),
        limit=np.array(limits, dtype=np.float64),
        dynamic_limit=float(dynamic_limit),
        num_microbatches=num_microbatches,
        mode=mode,
    )


def _assignments(
    num_layers: int, num_ranks: int, max_stages_per_rank: int, twins: list[tuple[int, int]]
) -> Iterator[_Row]:
    """Every partition and placement; of two interchangeable ranks the lower appears first."""
    most = min(num_layers, num_ranks * max_stages_per_rank)
    for num_stages in range(num_ranks, most + 1):
        placements = [
            ranks
            for ranks in product(range(num_ranks), repeat=num_stages)
            if all(1 <= ranks.count(rank) <= max_stages_per_rank for rank in range(num_ranks))
            and all(ranks.index(first) < ranks.index(second) for first, second in twins)
        ]
        for cuts in combinations(range(1, num_layers), num_stages - 1):
            for ranks in placements:
                yield (*cuts, num_layers), ranks


def _twins(job: Job) -> list[tuple[int, int]]:
    """Neighbours in groups of ranks that may all swap names: equal in every respect, and so are their links."""
    groups: list[list[int]] = []
    for rank in range(len(job.limit)):
        for group in groups:
            if all(_can_swap(job, rank, member) for member in group):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return [pair for group in groups for pair in pairwise(group)]


def _can_swap(job: Job, one: int, other: int) -> bool:
    names = list(range(len(job.limit)))
    names[one], names[other] = other, one
    return (
        bool((job.seconds[one] == job.seconds[other]).all())
        and job.overhead[one] == job.overhead[other]
        and job.limit[one] == job.limit[other]
        and all(
            table[a, b] == table[names[a], names[b]]
            for table in (job.latency, job.bandwidth)
            for a in names
            for b in names
            if a != b
        )
    )


def _table(rows: list[_Row], num_layers: int) -> tuple[Any, Any, Any]:
    ends = np.zeros((len(rows), num_layers), np.int64)
    ranks = np.zeros((len(rows), num_layers), np.int64)
    for index, row in enumerate(rows):
        ends[index, : len(row[0])], ranks[index, : len(row[1])] = row
    return ends, ranks, np.array([len(row[0]) for row in rows], dtype=np.int64)


def _filter(
    model: ModelGraph, constraints: Sequence[Constraint], num_ranks: int
) -> Callable[[tuple[int, ...], tuple[int, ...]], bool]:
    """Return what says whether a partition and placement obeys every constraint."""
    position = {layer.name: index for index, layer in enumerate(model.layers)}

    def obeys(constraint: Constraint, ends: tuple[int, ...], stage_of: list[int], ranks: Any) -> bool:
        def on(name: str) -> int:
            return int(ranks[stage_of[position[name]]])

        if constraint.pin:
            return all(on(name) == constraint.pin.rank for name in constraint.pin.layers)
        if constraint.same_rank:
            return len({on(name) for name in constraint.same_rank}) == 1
        if constraint.different_rank:
            return len({on(name) for name in constraint.different_rank}) == len(constraint.different_rank)
        if constraint.same_stage:
            return len({stage_of[position[name]] for name in constraint.same_stage}) == 1
        if constraint.boundary_after:
            return position[constraint.boundary_after] + 1 in ends
        if constraint.stages_per_rank:
            held = [ranks.count(rank) for rank in range(num_ranks)]
            wanted = constraint.stages_per_rank
            return (
                min(held) >= (wanted.min or 1)
                and max(held) <= (wanted.max or max(held))
                and (not wanted.equal or min(held) == max(held))
            )
        raise NotImplementedError(constraint)

    def allows(ends: tuple[int, ...], ranks: tuple[int, ...]) -> bool:
        stage_of = [s for s, (a, b) in enumerate(pairwise((0, *ends))) for _ in range(a, b)]
        return all(obeys(constraint, ends, stage_of, ranks) for constraint in constraints)

    return allows


class _Sequence:
    """What the search found, run again in plain Python: exact times and memory, and the plan."""

    def __init__(
        self, model: ModelGraph, job: Job, row: _Row, found: list[tuple[int, int]], max_stages: int
    ) -> None:
        self._model, self._job, self._row, self._max_stages = model, job, row, max_stages
        ends, ranks = _table([row], len(model.layers))[:2]
        self._staged = stage(job, ends[0], ranks[0], len(row[0]))
        #: (stage, kind, microbatch) and (source, destination, microbatch), in the order of the search.
        self._nodes: list[tuple[int, int, int]] = []
        self._times: dict[tuple[str, int, int, int], tuple[float, float]] = {}
        self._free = [0.0] * len(job.limit)
        self._pair_free: dict[int, float] = defaultdict(float)
        self.programs: list[list[str]] = [[] for _ in job.limit]
        self._count: dict[tuple[str, int, int], int] = defaultdict(int)
        for kind, index in found:
            self._send(index) if kind == SEND else self._run(kind, index)
        self.makespan_s = max(end for (what, *_), (_, end) in self._times.items() if what == "op")
        self.fits = all(self._peak(rank) <= limit for rank, limit in enumerate(self._staged.room))

    def _next(self, what: str, a: int, b: int) -> int:
        self._count[what, a, b] += 1
        return self._count[what, a, b] - 1

    def _run(self, kind: int, s: int) -> None:
        """Run an op, and send on what need not be put in order."""
        t = self._staged
        rank = int(t.rank[s])
        way = 0 if kind == FORWARD else 1
        group = "W" if kind == BACKWARD_WEIGHT else "FG"[way]
        if group == "W":
            inputs = [m for m in range(t.num_microbatches) if ("op", s, 1, m) in self._times]
            m = inputs[self._next("W", s, 0)]
            ready = [self._times["op", s, 1, m][1]]
        else:
            m = self._next(group, s, 0)
            ready = [self._arrival(edge, way, m) for edge in self._edges(s, way, into=True)]
        start = max(ready + [self._free[rank]])
        self._free[rank] = start + float(t.duration[s, kind])
        self._times["op", s, kind, m] = start, self._free[rank]
        self.programs[rank].append(f"{s}{_LETTERS[kind]}{m}")
        if group != "W":
            for edge in self._edges(s, way, into=False):
                if t.crosses[edge] and not t.shared[t.link[edge, way]]:
                    self._send(2 * edge + way)

    def _edges(self, s: int, way: int, *, into: bool) -> list[int]:
        ends = self._staged.destination if into == (way == 0) else self._staged.source
        return [edge for edge in range(len(ends)) if ends[edge] == s]

    def _ends(self, edge: int, way: int) -> tuple[int, int]:
        pair = int(self._staged.source[edge]), int(self._staged.destination[edge])
        return pair if way == 0 else pair[::-1]  # type: ignore[return-value]

    def _made(self, s: int, way: int, m: int) -> float:
        kinds = [0] if way == 0 else [1, 3]
        return next(self._times["op", s, kind, m][1] for kind in kinds if ("op", s, kind, m) in self._times)

    def _arrival(self, edge: int, way: int, m: int) -> float:
        source, destination = self._ends(edge, way)
        if self._staged.crosses[edge]:
            return self._times["message", source, destination, m][1]
        return self._made(source, way, m)

    def _send(self, directed: int) -> None:
        t = self._staged
        edge, way = divmod(directed, 2)
        source, destination = self._ends(edge, way)
        m = self._next("message", source, destination)
        pair = int(t.link[edge, way])
        start = max(self._made(source, way, m), self._pair_free[pair])
        self._pair_free[pair] = start + float(t.busy[edge, way])
        arrival = self._pair_free[pair] + float(t.latency[edge, way])
        self._times["message", source, destination, m] = start, arrival
        send, recv = transfer_words(source, destination, "FB"[way], m)
        self.programs[t.rank[source]].append(send)
        self.programs[t.rank[destination]].append(recv)

    def _peak(self, rank: int) -> float:
        """Largest sum of what a rank holds besides its state, over all instants."""
        change: dict[float, float] = defaultdict(float)
        for begin, end, size in self._holdings(rank):
            change[begin] += size
            change[end] -= size
        held = peak = 0.0
        for instant in sorted(change):
            held += change[instant]
            peak = max(peak, held)
        return peak

    def _holdings(self, rank: int) -> Iterator[tuple[float, float, float]]:
        t, times = self._staged, self._times
        for (what, a, b, m), (begin, end) in times.items():
            if what == "message" and t.rank[b] == rank:
                kinds = [0] if a < b else [1, 3]
                user = next(times["op", b, kind, m] for kind in kinds if ("op", b, kind, m) in times)
                edge = next(e for e in range(len(t.source)) if {t.source[e], t.destination[e]} == {a, b})
                yield end, user[0], float(t.size[edge])
            if what != "op" or t.rank[a] != rank:
                continue
            yield begin, end, float(t.workspace[a])
            forward = times["op", a, 0, m][0]
            if b == 3:
                yield forward, end, float(t.activation[a])
            if b == 1:
                yield forward, end, float(t.freed[a])
            if b == 2:
                yield forward, end, float(t.activation[a] - t.freed[a])
                yield times["op", a, 1, m][1], end, float(t.stash[a])

    def plan(self, cluster: Cluster) -> Plan:
        """Return the document."""
        starts = (0, *self._row[0])
        return Plan.from_document(
            {
                "format": "octoplan.plan/1",
                "model": {"name": self._model.name, "sha256": ""},
                "cluster": {"name": cluster.name, "sha256": ""},
                "job": {
                    "microbatches": self._job.num_microbatches,
                    "backward": "fused" if self._job.mode == FUSED else "split",
                    "max_stages_per_device": self._max_stages,
                    "memory_limit": None,
                },
                "stages": [
                    {"id": s, "layers": [starts[s], end], "rank": rank}
                    for s, (end, rank) in enumerate(zip(*self._row, strict=True))
                ],
                "programs": self.programs,
                "predicted": {
                    "makespan_s": self.makespan_s,
                    "lower_bound_s": None,
                    "gap": None,
                    "bubble_fraction": 0,
                    "ranks": [],
                },
                "provenance": {"strategy": "exhaustive"},
            }
        )
