"""Two independent judges of a plan's programs, written from the contract alone.

`runs` executes the words literally: every rank takes its words one after the other, a SEND or RECV blocks the
rank until its partner is there, and the k-th SEND of a rank pair meets the k-th RECV. `is_acyclic` asks
networkx about a graph of all words.
"""

from __future__ import annotations

import re
from collections import Counter

import networkx as nx

from tests.schemas.random_plans import Pipeline, Programs

Message = tuple[int, int, int]


def runs(pipeline: Pipeline, programs: Programs) -> bool:
    """Whether the programs run to their end and have then done everything once."""
    try:
        return _Machine(pipeline, programs).run()
    except BrokenError:
        return False


class BrokenError(Exception):
    """The programs do something that no rank can do."""


class _Machine:
    def __init__(self, pipeline: Pipeline, programs: Programs) -> None:
        self.pipeline, self.programs = pipeline, programs
        self.next = [0] * len(programs)
        self.done: Counter[tuple[int, str, int]] = Counter()
        self.delivered: Counter[Message] = Counter()

    def run(self) -> bool:
        moved = True
        while moved:
            moved = False
            for rank in range(len(self.programs)):
                while self.head(rank) is not None and "_" not in str(self.head(rank)):
                    self.compute(rank, str(self.head(rank)))
                    self.next[rank] += 1
                    moved = True
                moved |= self.transfer(rank)
        return all(self.head(rank) is None for rank in range(len(self.programs))) and self.is_complete()

    def head(self, rank: int) -> str | None:
        words = self.programs[rank]
        return words[self.next[rank]] if self.next[rank] < len(words) else None

    def compute(self, rank: int, word: str) -> None:
        stage, kind, m = re.fullmatch(r"(\d+)([FIWB])(\d+)", word).groups()  # type: ignore[union-attr]
        op = int(stage), kind, int(m)
        if self.pipeline.rank_of[op[0]] != rank or self.done[op]:
            raise BrokenError
        if kind == "W":
            needed = self.done[op[0], "I", op[2]] == 1
        else:
            needed = all(self.has(other, op) for other in self.inputs(op))
            needed &= kind == "F" or self.done[op[0], "F", op[2]] == 1
        if not needed:
            raise BrokenError
        self.done[op] += 1

    def inputs(self, op: tuple[int, str, int]) -> list[int]:
        if op[1] == "F":
            return [early for early, late in self.pipeline.edges if late == op[0]]
        return [late for early, late in self.pipeline.edges if early == op[0]]

    def has(self, source: int, op: tuple[int, str, int]) -> bool:
        stage, kind, m = op
        if self.pipeline.rank_of[source] != self.pipeline.rank_of[stage]:
            return self.delivered[source, stage, m] == 1
        return self.produced(source, "F" if kind == "F" else "B", m)

    def produced(self, stage: int, direction: str, m: int) -> bool:
        if direction == "F":
            return self.done[stage, "F", m] == 1
        return self.done[stage, "B", m] + self.done[stage, "I", m] == 1

    def message(self, rank: int) -> tuple[str, Message, str] | None:
        """Side, (source, destination, microbatch) and direction of the transfer that a rank stands at."""
        word = self.head(rank)
        match = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)(?:@(\d+))?", word) if word is not None else None
        if match is None:
            return None
        stage, side, direction, m = int(match[1]), match[2], match[3], int(match[4])
        onward = 1 if (side == "SEND") == (direction == "F") else -1
        other = int(match[5]) if match[5] else stage + onward
        if self.pipeline.rank_of[stage] != rank or tuple(sorted((stage, other))) not in self.pipeline.edges:
            raise BrokenError
        key = (stage, other, m) if side == "SEND" else (other, stage, m)
        if self.pipeline.rank_of[other] == rank:
            raise BrokenError
        if side == "SEND" and not self.produced(stage, direction, m):
            raise BrokenError
        return side, key, direction

    def transfer(self, rank: int) -> bool:
        """Let a SEND at this rank meet the RECV at the other one."""
        own = self.message(rank)
        if own is None or own[0] != "SEND":
            return False
        other_rank = self.pipeline.rank_of[own[1][1]]
        other = self.message(other_rank)
        if other is None or other[0] != "RECV" or self.pipeline.rank_of[other[1][0]] != rank:
            return False
        if other[1:] != own[1:]:
            raise BrokenError  # first in, first out: the wrong tensor would arrive
        self.delivered[own[1]] += 1
        self.next[rank] += 1
        self.next[other_rank] += 1
        return True

    def is_complete(self) -> bool:
        pipeline = self.pipeline
        for stage in range(len(pipeline.rank_of)):
            for m in range(pipeline.num_microbatches):
                kinds = "".join(kind for kind in "FBIW" for _ in range(self.done[stage, kind, m]))
                if kinds not in ("FB", "FIW"):
                    return False
        expected = {
            (source, destination, m)
            for edge in pipeline.edges
            for source, destination in (edge, edge[::-1])
            for m in range(pipeline.num_microbatches)
            if pipeline.rank_of[source] != pipeline.rank_of[destination]
        }
        return self.delivered == Counter(expected)


def word_graph(pipeline: Pipeline, programs: Programs, *, is_total_order: bool) -> nx.DiGraph[str]:
    """Build a graph of complete programs, in which a SEND and its RECV are one node.

    With ``is_total_order`` consecutive words of a program are joined by an edge; else, as the contract says,
    consecutive compute words and consecutive transfer words are. Edges also lead from producers to messages
    or local consumers, and from messages to consumers.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    by_kind: dict[tuple[int, str, int], str] = {}
    for words in programs:
        last: dict[bool, str] = {}
        for word in words:
            is_transfer = "_" in word
            node = _message_node(word) if is_transfer else word
            graph.add_node(node)
            lane = is_transfer and not is_total_order
            if lane in last:
                graph.add_edge(last[lane], node)
            last[lane] = node
            if not is_transfer:
                stage, kind, m = re.fullmatch(r"(\d+)([FIWB])(\d+)", word).groups()  # type: ignore[union-attr]
                by_kind[int(stage), "B" if kind == "I" else kind, int(m)] = word
    for (stage, kind, m), word in by_kind.items():
        if kind == "B":
            graph.add_edge(by_kind[stage, "F", m], word)
        if kind == "W":
            graph.add_edge(by_kind[stage, "B", m], word)
    for early, late in pipeline.edges:
        for source, destination, kind in ((early, late, "F"), (late, early, "B")):
            for m in range(pipeline.num_microbatches):
                path = [by_kind[source, kind, m], by_kind[destination, kind, m]]
                if pipeline.rank_of[source] != pipeline.rank_of[destination]:
                    path.insert(1, f"{source}>{destination}:{m}")
                nx.add_path(graph, path)
    return graph


def _message_node(word: str) -> str:
    match = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)(?:@(\d+))?", word)
    assert match is not None
    stage, side = int(match[1]), match[2]
    onward = 1 if (side == "SEND") == (match[3] == "F") else -1
    other = int(match[5]) if match[5] else stage + onward
    return f"{stage}>{other}:{match[4]}" if side == "SEND" else f"{other}>{stage}:{match[4]}"


def is_first_in_first_out(pipeline: Pipeline, programs: Programs) -> bool:
    """Whether each directed rank pair sends and receives its messages in one order."""
    order: dict[tuple[int, int], tuple[list[str], list[str]]] = {}
    for words in programs:
        for word in words:
            if "_" in word:
                node = _message_node(word)
                source, destination = (pipeline.rank_of[int(s)] for s in node.split(":")[0].split(">"))
                order.setdefault((source, destination), ([], []))["RECV" in word].append(node)
    return all(sent == received for sent, received in order.values())
