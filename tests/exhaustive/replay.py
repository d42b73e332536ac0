"""A sequence that the search found, run again in plain Python: exact times, memory by every byte, and the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from octoplan_schemas import Cluster, ModelGraph, Plan, transfer_words
from tests.exhaustive.arrays import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    FUSED,
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
        self._count: dict[tuple[str, int], int] = defaultdict(int)
        self.programs: list[list[str]] = [[] for _ in job.limit]
        for code in path.tolist():
            kind, index = divmod(code, STRIDE)
            if kind == SEND:
                self._send(index)
            else:
                self._run(kind, index)
        self.makespan_s = max(end for _, end in self._ops.values())
        self.fits = all(self._peak(rank) <= room for rank, room in enumerate(self._staged.room.tolist()))

    def _next(self, what: str, which: int) -> int:
        self._count[what, which] += 1
        return self._count[what, which] - 1

    def _run(self, kind: int, s: int) -> None:
        """Run an op, and send on what need not be put in order."""
        rank = int(self._staged.rank[s])
        if kind == BACKWARD_WEIGHT:
            inputs = [m for m in range(self._staged.num_microbatches) if (s, BACKWARD_INPUT, m) in self._ops]
            m = inputs[self._next("weight", s)]
            ready = [self._ops[s, BACKWARD_INPUT, m][1]]
            made = []
        else:
            step = s if kind == FORWARD else len(self._staged.rank) + s
            m = self._next("step", step)
            ready = [self._arrival(d, m) for d, user in enumerate(self._staged.user.tolist()) if user == step]
            made = [d for d, maker in enumerate(self._staged.maker.tolist()) if maker == step]
        start = max([*ready, self._free[rank]])
        self._free[rank] = start + float(self._staged.duration[s, kind])
        self._ops[s, kind, m] = start, self._free[rank]
        self.programs[rank].append(f"{s}{'FIWB'[kind]}{m}")
        for d in made:
            if self._staged.crosses[d] and not self._staged.is_ordered[d]:
                self._send(d)

    def _step(self, step: int, m: int) -> _Interval:
        """Return start and end of a microbatch's F or gradient op."""
        is_backward, s = divmod(step, len(self._staged.rank))
        if not is_backward:
            return self._ops[s, FORWARD, m]
        kind = BACKWARD_INPUT if (s, BACKWARD_INPUT, m) in self._ops else BACKWARD
        return self._ops[s, kind, m]

    def _arrival(self, d: int, m: int) -> float:
        if self._staged.crosses[d]:
            return self._messages[d, m][1]
        return self._step(int(self._staged.maker[d]), m)[1]

    def _send(self, d: int) -> None:
        """Send the next message of a directed edge."""
        t = self._staged
        maker, user, pair = int(t.maker[d]), int(t.user[d]), int(t.pair[d])
        m = self._next("message", d)
        start = max(self._step(maker, m)[1], self._pair_free[pair])
        self._pair_free[pair] = start + float(t.busy[d])
        self._messages[d, m] = start, self._pair_free[pair] + float(t.latency[d])
        ends = maker % len(t.rank), user % len(t.rank)
        for s, word in zip(ends, transfer_words(*ends, "FB"[d % 2], m), strict=True):
            self.programs[t.rank[s]].append(word)

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
            user = int(t.user[d])
            if t.rank[user % len(t.rank)] == rank:
                yield arrival, self._step(user, m)[0], float(t.size[d])
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
