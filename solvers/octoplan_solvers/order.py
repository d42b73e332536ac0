"""`Order`: which compute ops every rank runs, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octoplan_solvers.ops import KIND_LETTERS, IntArray, decode, encode


@dataclass(frozen=True)
class Order:
    """Op codes (`octoplan_solvers.ops`) of all ranks in one array; rank r has ``ops[begin[r]:begin[r + 1]]``."""

    ops: IntArray
    rank_begin: IntArray
    num_microbatches: int
    #: Every message, ``(edge * 2 + direction) * M + microbatch``; those of a directed rank pair are sent in this order.
    #: None: each leaves as soon as it is made, several of one op in the order of edges.
    messages: IntArray | None = None

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_begin) - 1

    def of_rank(self, rank: int) -> IntArray:
        """Return the codes of one rank, in order."""
        return self.ops[self.rank_begin[rank] : self.rank_begin[rank + 1]]

    @classmethod
    def from_lists(
        cls, ops_by_rank: Sequence[Sequence[tuple[int, str, int]]], num_microbatches: int
    ) -> Order:
        """Build from ``(stage, letter of the kind, microbatch)`` per rank."""
        codes = [
            encode(stage, KIND_LETTERS.index(kind), microbatch, num_microbatches)
            for ops in ops_by_rank
            for stage, kind, microbatch in ops
        ]
        begin = np.cumsum([0, *(len(ops) for ops in ops_by_rank)])
        return cls(np.array(codes, dtype=np.int64), begin.astype(np.int64), num_microbatches)

    def to_lists(self) -> list[list[tuple[int, str, int]]]:
        """Return ``(stage, letter of the kind, microbatch)`` per rank."""
        result = []
        for rank in range(self.num_ranks):
            decoded = (decode(code, self.num_microbatches) for code in self.of_rank(rank).tolist())
            result.append([(stage, KIND_LETTERS[kind], microbatch) for stage, kind, microbatch in decoded])
        return result
