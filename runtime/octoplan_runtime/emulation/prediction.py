"""When every op and every message would start and end (contract, section 4), for costs that are not the plan's own.

The compiler's simulator does the same for whole searches; a node that runs plans has no compiler, and one pass in
plain Python is enough here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from octoplan_runtime.emulation.costs import EmulatedCosts
from octoplan_schemas import OpWord, Plan, parse_word

#: ``(rank, word, start_s, end_s)``; of a SEND, from its start to its arrival.
Op = tuple[int, str, float, float]
#: (source stage, destination stage, microbatch)
_Message = tuple[int, int, int]


def predicted_ops(plan: Plan, costs: EmulatedCosts) -> list[Op]:
    """Return every compute op and every SEND of a valid plan with its times, by rank in program order."""
    replay = _Replay(plan, costs)
    while any(replay.advance(rank) for rank in range(plan.num_ranks)):
        pass
    assert all(not program for program in replay.left), "a valid plan does not wait on itself"
    return [op for rank in replay.ops for op in rank]


def makespan_s(ops: Iterable[Op]) -> float:
    """Return the time from the start of the first compute op to the end of the last."""
    compute = [op for op in ops if parse_word(op[1]).is_compute]
    return max(end for *_, end in compute) - min(start for *_, start, _ in compute)


class _Replay:
    """Every rank advances until an input has not been sent yet."""

    def __init__(self, plan: Plan, costs: EmulatedCosts) -> None:
        self._costs = costs
        self._ranks = [stage.rank for stage in plan.stages]
        self.left = [[parse_word(word) for word in reversed(program)] for program in plan.programs]
        self._sources = _sources(program for program in self.left)
        self.ops: list[list[Op]] = [[] for _ in plan.programs]
        self._rank_free = [0.0] * plan.num_ranks
        self._pair_free: dict[tuple[int, int], float] = {}
        self._ends: dict[tuple[int, str, int], float] = {}
        self._arrivals: dict[_Message, float] = {}

    def advance(self, rank: int) -> bool:
        """Run a rank's words as far as possible; return whether there was any."""
        program = self.left[rank]
        before = len(program)
        while program and self._run(rank, program[-1]):
            program.pop()
        return len(program) < before

    def _run(self, rank: int, word: OpWord) -> bool:
        if word.is_send:
            self._send(rank, word)
        elif word.is_compute:
            arrivals = [self._arrivals.get(message) for message in self._inputs(word)]
            if None in arrivals:
                return False
            start = max([self._rank_free[rank], *(time for time in arrivals if time is not None)])
            end = start + self._costs.duration_s(word)
            self._rank_free[rank] = end
            self._ends[word.stage, "F" if word.kind == "F" else "B", word.microbatch] = end
            self.ops[rank].append((rank, str(word), start, end))
        return True

    def _send(self, rank: int, word: OpWord) -> None:
        destination = word.other_stage
        pair = rank, self._ranks[destination]
        busy_s, latency_s = self._costs.link_s(word.stage, destination)
        produced = self._ends[word.stage, word.kind[-1], word.microbatch]
        start = max(produced, self._pair_free.get(pair, 0.0))
        self._pair_free[pair] = start + busy_s
        arrival = start + busy_s + latency_s
        self._arrivals[word.stage, destination, word.microbatch] = arrival
        self.ops[rank].append((rank, str(word), start, arrival))

    def _inputs(self, word: OpWord) -> list[_Message]:
        """Return the messages that an op needs; what stays on the rank is ordered by its program."""
        direction = {"F": "F", "W": ""}.get(word.kind, "B")
        sources = self._sources.get((word.stage, direction), ())
        return [(source, word.stage, word.microbatch) for source in sources]


def _sources(programs: Iterable[Iterable[OpWord]]) -> Mapping[tuple[int, str], set[int]]:
    """Return the stages on other ranks that feed a stage, by (stage, direction)."""
    sources: dict[tuple[int, str], set[int]] = {}
    for program in programs:
        for word in program:
            if word.is_send:
                sources.setdefault((word.other_stage, word.kind[-1]), set()).add(word.stage)
    return sources
