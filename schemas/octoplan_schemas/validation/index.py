"""Parse a plan's programs once and index every op and message by what it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from octoplan_schemas.errors import InputError
from octoplan_schemas.op_words import OpWord, parse_word
from octoplan_schemas.plan import Plan

#: (stage, kind, microbatch) of a compute op.
ComputeKey = tuple[int, str, int]
#: (source stage, destination stage, microbatch); a gradient's source is the later stage.
MessageKey = tuple[int, int, int]
#: (rank, position in its program)
Place = tuple[int, int]


@dataclass(slots=True)
class ProgramIndex:
    """Where every compute op and every end of every message stands."""

    words: list[list[OpWord]]
    computes: dict[ComputeKey, Place] = field(default_factory=dict)
    sends: dict[MessageKey, Place] = field(default_factory=dict)
    recvs: dict[MessageKey, Place] = field(default_factory=dict)
    #: One line per word that occurs twice, in program order.
    doubles: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plan: Plan) -> ProgramIndex:
        """Parse every word of every program.

        Raises
        ------
        InputError
            If a word is malformed; the field names rank and position.
        """
        index = cls(words=[])
        for rank, program in enumerate(plan.programs):
            index.words.append([_parse(text, rank, position) for position, text in enumerate(program)])
            index._add_program(rank)
        return index

    def _add_program(self, rank: int) -> None:
        computes, sends, recvs = self.computes, self.sends, self.recvs
        for position, word in enumerate(self.words[rank]):
            stage, kind, microbatch, _ = word
            size = 0
            if len(kind) == 1:
                size = len(computes)
                computes.setdefault((stage, kind, microbatch), (rank, position))
                grown = len(computes) > size
            elif kind[0] == "S":
                size = len(sends)
                sends.setdefault((stage, word.other_stage, microbatch), (rank, position))
                grown = len(sends) > size
            else:
                size = len(recvs)
                recvs.setdefault((word.other_stage, stage, microbatch), (rank, position))
                grown = len(recvs) > size
            if not grown:
                self.doubles.append(f"programs.{rank}.{position}: {word} occurs twice")


def _parse(text: str, rank: int, position: int) -> OpWord:
    try:
        return parse_word(text)
    except InputError as error:
        raise InputError(error.message, field=f"programs.{rank}.{position}") from None


def stage_edges(
    stage_bounds: Iterable[tuple[int, int]], skips: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return every pair of stages that hand tensors over, sorted: neighbours and skip edges.

    Parameters
    ----------
    stage_bounds:
        ``[first, end)`` layer indices of every stage, in model order.
    skips:
        Layer indices ``(source, destination)`` of every skip edge.
    """
    bounds = list(stage_bounds)
    stage_of = [stage for stage, (first, end) in enumerate(bounds) for _ in range(first, end)]
    edges = {(stage, stage + 1) for stage in range(len(bounds) - 1)}
    for source, destination in skips:
        if stage_of[source] != stage_of[destination]:
            edges.add((stage_of[source], stage_of[destination]))
    return sorted(edges)
