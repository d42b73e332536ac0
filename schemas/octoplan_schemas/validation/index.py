"""Parse a plan's programs once and index every op and message by what it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octoplan_schemas.errors import InputError
from octoplan_schemas.op_words import RECV_BACKWARD, SEND_FORWARD, parse_word, split_words
from octoplan_schemas.plan import Plan

#: (stage, kind, microbatch) of a compute op.
ComputeKey = tuple[int, str, int]
#: (source stage, destination stage, microbatch); a gradient's source is the later stage.
MessageKey = tuple[int, int, int]
#: (rank, position in its program)
Place = tuple[int, int]


@dataclass(slots=True)
class ProgramIndex:
    """Where every compute op and every end of every message stands.

    Plain tuples are the keys, not `OpWord`: on a plan of a million words the garbage collector can tell the
    difference.
    """

    computes: dict[ComputeKey, Place] = field(default_factory=dict)
    sends: dict[MessageKey, Place] = field(default_factory=dict)
    recvs: dict[MessageKey, Place] = field(default_factory=dict)
    #: By rank: its compute ops, and the messages of its SEND and RECV words, in program order.
    compute_order: list[list[ComputeKey]] = field(default_factory=list)
    message_order: list[list[MessageKey]] = field(default_factory=list)
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
        index = cls()
        for rank, program in enumerate(plan.programs):
            index._add_program(rank, program)
        return index

    def _add_program(self, rank: int, program: Sequence[str]) -> None:
        computes, sends, recvs = self.computes, self.sends, self.recvs
        ops: list[ComputeKey] = []
        messages: list[MessageKey] = []
        for position, (stage_text, kind, microbatch, peer_text) in enumerate(_split(program, rank)):
            stage = int(stage_text)
            if len(kind) == 1:
                op = stage, kind, int(microbatch)
                ops.append(op)
                is_double = op in computes
                if not is_double:
                    computes[op] = rank, position
            else:
                if peer_text:
                    peer = int(peer_text)
                else:
                    peer = stage + 1 if kind in (SEND_FORWARD, RECV_BACKWARD) else stage - 1
                is_send = kind[0] == "S"
                ends = sends if is_send else recvs
                message = (stage, peer, int(microbatch)) if is_send else (peer, stage, int(microbatch))
                messages.append(message)
                is_double = message in ends
                if not is_double:
                    ends[message] = rank, position
            if is_double:
                self.doubles.append(f"programs.{rank}.{position}: {program[position]} occurs twice")
        self.compute_order.append(ops)
        self.message_order.append(messages)


def _split(program: Sequence[str], rank: int) -> list[tuple[str, str, str, str]]:
    try:
        return split_words(program)
    except InputError:
        for position, text in enumerate(program):
            try:
                parse_word(text)
            except InputError as error:
                raise InputError(error.message, field=f"programs.{rank}.{position}") from None
        raise


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
