"""A sequence that the search found, run again in plain Python: exact times, memory by every byte, and the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from octoplan_schemas import Cluster, ModelGraph, Plan, transfer_words
from tests.exhaustive.arrays import (
    ACTIVATION,
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
    GRADIENT,
    SEND,
    Ints,
    Job,
)
from tests.exhaustive.assignments import Row, table
from tests.exhaustive.node import STRIDE
from tests.exhaustive.staging import stage

_Interval = tuple[float, float]


class Replay:
    """Programs and times of a sequence; k-th executions are those of microbatch k."""

    def __init__(self, job: Job, row: Row, path: Ints) -> None:
        ends, ranks, num_stages = table([row])
        self._staged = stage(job, ends[0], ranks[0], num_stages[0])
        self._mode, self._row = job.mode, row
        #: By (stage, kind, microbatch): start and end; by (directed edge, microbatch): start and arrival.
        self._ops: dict[tuple[int, int, int], _Interval] = {}
        self._messages: dict[tuple[int, int], _Interval] = {}
        self._free: dict[int, float] = defaultdict(float)
        self._pair_free: dict[int, float] = defaultdict(float)
        self._count: dict[tuple[str, int, int], int] = defaultdict(int)
        self.programs: list[list[str]] = [[] for _ in job.limit]
        for code in path.tolist():
            kind, index = divmod(code, STRIDE)
            if kind == SEND:
                self._send(index)
            else:
                self._run(kind, index)
        self.makespan_s = max(end for _, end in self._ops.values())
        self.fits = all(self._peak(rank) <= room for rank, room in enumerate(self._staged.room.tolist()))

    def _next(self, what: str, which: int, way: int = 0) -> int:
        self._count[what, which, way] += 1
        return self._count[what, which, way] - 1

    def _run(self, kind: int, s: int) -> None:
        """Run an op, and send on what need not be put in order."""
        rank = int(self._staged.rank[s])
        way = ACTIVATION if kind == FORWARD else GRADIENT
        if kind == BACKWARD_WEIGHT:
            inputs = [m for m in range(self._staged.num_microbatches) if (s, BACKWARD_INPUT, m) in self._ops]
            m = inputs[self._next("weight", s)]
            ready = [self._ops[s, BACKWARD_INPUT, m][1]]
        else:
            m = self._next("op", s, way)
            ready = [self._arrival(d, m) for d in self._directed(s, way, ends_here=True)]
        start = max([*ready, self._free[rank]])
        self._free[rank] = start + float(self._staged.duration[s, kind])
        self._ops[s, kind, m] = start, self._free[rank]
        self.programs[rank].append(f"{s}{'FIWB'[kind]}{m}")
        if kind != BACKWARD_WEIGHT:
            for d in self._directed(s, way, ends_here=False):
                pair = self._staged.pair[d // 2, way]
                if self._staged.crosses[d // 2] and not self._staged.is_shared[pair]:
                    self._send(d)

    def _directed(self, s: int, way: int, *, ends_here: bool) -> list[int]:
        """Return the directed edges of one way that end, or begin, at a stage."""
        late = ends_here == (way == ACTIVATION)
        stages = self._staged.destination if late else self._staged.source
        return [2 * e + way for e, own in enumerate(stages.tolist()) if own == s]

    def _ends(self, d: int) -> tuple[int, int]:
        """Return the stages at which the messages of a directed edge begin and end."""
        early, late = int(self._staged.source[d // 2]), int(self._staged.destination[d // 2])
        return (early, late) if d % 2 == ACTIVATION else (late, early)

    def _op(self, s: int, way: int, m: int) -> _Interval:
        """Return start and end of a microbatch's F or gradient op on a stage."""
        if way == ACTIVATION:
            return self._ops[s, FORWARD, m]
        kind = BACKWARD_INPUT if (s, BACKWARD_INPUT, m) in self._ops else BACKWARD
        return self._ops[s, kind, m]

    def _arrival(self, d: int, m: int) -> float:
        if self._staged.crosses[d // 2]:
            return self._messages[d, m][1]
        return self._op(self._ends(d)[0], d % 2, m)[1]

    def _send(self, d: int) -> None:
        """Send the next message of a directed edge."""
        sender, receiver = self._ends(d)
        e, way = divmod(d, 2)
        m = self._next("message", d)
        pair = int(self._staged.pair[e, way])
        start = max(self._op(sender, way, m)[1], self._pair_free[pair])
        self._pair_free[pair] = start + float(self._staged.busy[e, way])
        self._messages[d, m] = start, self._pair_free[pair] + float(self._staged.latency[e, way])
        words = transfer_words(sender, receiver, "FB"[way], m)
        for s, word in zip((sender, receiver), words, strict=True):
            self.programs[self._staged.rank[s]].append(word)

    def _peak(self, rank: int) -> float:
        """Return the largest sum of what a rank holds besides its state, over all instants."""
        change: dict[float, float] = defaultdict(float)
        for begin, end, size in self._holdings(rank):
            change[begin] += size
            change[end] -= size
        total = peak = 0.0
        for instant in sorted(change):
            total += change[instant]
            peak = max(peak, total)
        return peak

    def _holdings(self, rank: int) -> Iterator[tuple[float, float, float]]:
        t = self._staged
        for (d, m), (_, arrival) in self._messages.items():
            receiver = self._ends(d)[1]
            if t.rank[receiver] == rank:
                yield arrival, self._op(receiver, d % 2, m)[0], float(t.size[d // 2])
        for (s, kind, m), (begin, end) in self._ops.items():
            if t.rank[s] != rank:
                continue
            yield begin, end, float(t.workspace[s])
            forward = self._ops[s, FORWARD, m][0]
            if kind == BACKWARD:
                yield forward, end, float(t.activation[s])
            if kind == BACKWARD_INPUT:
                yield forward, end, float(t.freed[s])
            if kind == BACKWARD_WEIGHT:
                yield forward, end, float(t.activation[s] - t.freed[s])
                yield self._ops[s, BACKWARD_INPUT, m][1], end, float(t.stash[s])

    def plan(self, model: ModelGraph, cluster: Cluster, max_stages_per_device: int) -> Plan:
        """Return the document; of the prediction only the makespan is filled in."""
        firsts = (0, *self._row[0])
        stages = [
            {"id": s, "layers": [firsts[s], end], "rank": rank}
            for s, (end, rank) in enumerate(zip(*self._row, strict=True))
        ]
        return Plan.from_document(
            {
                "format": "octoplan.plan/1",
                "model": {"name": model.name, "sha256": ""},
                "cluster": {"name": cluster.name, "sha256": ""},
                "job": {
                    "microbatches": self._staged.num_microbatches,
                    "backward": "fused" if self._mode == FUSED else "split",
                    "max_stages_per_device": max_stages_per_device,
                    "memory_limit": None,
                },
                "stages": stages,
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
