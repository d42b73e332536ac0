"""``check_plan``: every rule of the contract that a plan alone (or with its skip edges) can break."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from octoplan_schemas.errors import InputError
from octoplan_schemas.op_words import parse_word
from octoplan_schemas.plan import Plan
from octoplan_schemas.validation.deadlock import find_cycle, message_word
from octoplan_schemas.validation.index import MessageKey, Place, ProgramIndex

Rule = Literal["structure", "complete", "order", "fifo", "deadlock", "memory", "prediction"]
_MAX_FINDINGS = 20
#: Which of F, B, I and W a stage and microbatch may have.
_WHOLE = ([True, True, False, False], [True, False, True, True])


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that the plan breaks, with the place and what is wrong there."""

    rule: Rule
    message: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.rule}: {self.message}"


def check_plan(
    plan: Plan,
    skip_edges: Iterable[tuple[int, int]] | None = None,
    *,
    index: ProgramIndex | None = None,
) -> list[Finding]:
    """Decide whether a plan is complete, ordered, first-in-first-out and deadlock-free, in linear time.

    Parameters
    ----------
    plan:
        The plan.
    skip_edges:
        Pairs of stages, earlier first, that exchange tensors besides neighbours, as the model says
        (`stage_edges`). None if the model is not at hand: then the SEND and RECV words with ``@`` say it.
    index:
        The plan's parsed programs, if at hand; parsing is a good part of the work on a large plan.

    Returns
    -------
    list of Finding
        Empty if the plan is valid; at most 20. Later rules are only looked at where the earlier ones hold.
    """
    if index is None:
        try:
            index = ProgramIndex.of(plan)
        except InputError as error:
            return [Finding("structure", str(error))]
    edges = {(s, s + 1) for s in range(len(plan.stages) - 1)} | _skips(index, skip_edges)
    for findings in (
        _structure(plan, index),
        lambda: _complete(plan, index, edges),
        lambda: _order(plan, index, edges),
        lambda: _fifo(plan, index),
        lambda: _deadlock(plan, index, edges),
    ):
        found = findings() if callable(findings) else findings
        if found:
            return found[:_MAX_FINDINGS]
    return []


def require_valid(
    plan: Plan, skip_edges: Iterable[tuple[int, int]] | None = None, *, source: str | None = None
) -> None:
    """Raise `InputError` with the first finding if the plan is not valid."""
    findings = check_plan(plan, skip_edges)
    if findings:
        raise InputError(str(findings[0]), source=source)


def _skips(index: ProgramIndex, skip_edges: Iterable[tuple[int, int]] | None) -> set[tuple[int, int]]:
    """What the model says, or else what the words with ``@`` say."""
    if skip_edges is not None:
        return set(skip_edges)
    ends = [(source, destination) for source, destination, _ in (*index.sends, *index.recvs)]
    return {(min(pair), max(pair)) for pair in ends if abs(pair[0] - pair[1]) > 1}


def _structure(plan: Plan, index: ProgramIndex) -> list[Finding]:
    """Stages cover the layers once, in order; ranks exist and hold at least one; words are in range."""
    found = []
    next_layer = 0
    held = set()
    for position, stage in enumerate(plan.stages):
        where = f"stages.{position}"
        first, end = stage.layers
        if stage.id != position:
            found.append(
                f"{where}.id: {stage.id} must be {position}; stages are listed in model order from 0"
            )
        if first != next_layer or end <= first:
            found.append(
                f"{where}.layers: [{first}, {end}] must start at layer {next_layer} and end after it"
            )
        if stage.rank >= plan.num_ranks:
            found.append(f"{where}.rank: {stage.rank} has no program; there are {plan.num_ranks}")
        next_layer = end
        held.add(stage.rank)
    for rank in range(plan.num_ranks):
        if rank not in held:
            found.append(f"programs.{rank}: rank {rank} holds no stage")
    found += _words_in_range(plan, index)
    return [Finding("structure", message) for message in found]


def _words_in_range(plan: Plan, index: ProgramIndex) -> list[str]:
    if not index.doubles and _all_in_range(plan, index):
        return []
    num_stages, num_microbatches = len(plan.stages), plan.job.microbatches
    found = []
    for rank, program in enumerate(plan.programs):
        for position, text in enumerate(program):
            stage, _, microbatch, peer = parse_word(text)
            if (
                stage >= num_stages
                or microbatch >= num_microbatches
                or (peer is not None and peer >= num_stages)
            ):
                found.append(
                    f"programs.{rank}.{position}: {text} names a stage or microbatch that is not there "
                    f"({num_stages} stages, {num_microbatches} microbatches)"
                )
            elif plan.stages[stage].rank != rank:
                found.append(
                    f"programs.{rank}.{position}: {text} belongs to stage {stage}, which is on rank "
                    f"{plan.stages[stage].rank}"
                )
    return found


def _all_in_range(plan: Plan, index: ProgramIndex) -> bool:
    """Decide quickly; False also where a closer look finds nothing, as if a transfer leads past the last stage."""
    rank_of = {stage: entry.rank for stage, entry in enumerate(plan.stages)}
    microbatches = range(plan.job.microbatches)
    return (
        all(
            rank_of.get(stage) == rank and m in microbatches
            for (stage, _, m), (rank, _) in index.computes.items()
        )
        and all(
            rank_of.get(source) == rank and destination in rank_of and m in microbatches
            for (source, destination, m), (rank, _) in index.sends.items()
        )
        and all(
            rank_of.get(destination) == rank and source in rank_of and m in microbatches
            for (source, destination, m), (rank, _) in index.recvs.items()
        )
    )


def _complete(plan: Plan, index: ProgramIndex, edges: set[tuple[int, int]]) -> list[Finding]:
    """Each op and each end of each message exactly once; one B, or one I and one W."""
    # Messages only after the ops: then the words bound the microbatches that have to be looked at.
    found = index.doubles + _computes_complete(plan, index) or _messages_complete(plan, index, edges)
    return [Finding("complete", message) for message in found]


def _computes_complete(plan: Plan, index: ProgramIndex) -> list[str]:
    found: list[str] = []
    computes = index.computes
    pairs = ((stage, m) for stage in range(len(plan.stages)) for m in range(plan.job.microbatches))
    for stage, m in pairs:
        has = [(stage, kind, m) in computes for kind in "FBIW"]
        if has in _WHOLE:
            continue
        where = f"programs.{plan.stages[stage].rank}"
        if not has[0]:
            found.append(f"{where}: {stage}F{m} is missing")
        if has[1:] not in (whole[1:] for whole in _WHOLE):
            names = " and ".join(f"{stage}{kind}{m}" for kind in "BIW" if (stage, kind, m) in computes)
            found.append(
                f"{where}: stage {stage}, microbatch {m} has {names or 'no backward'}; it needs either "
                f"{stage}B{m}, or both {stage}I{m} and {stage}W{m}"
            )
        if len(found) >= _MAX_FINDINGS:  # a mistyped number of microbatches must not be counted through
            break
    return found


def _messages_complete(plan: Plan, index: ProgramIndex, edges: set[tuple[int, int]]) -> list[str]:
    """Every edge between two ranks has its SEND and RECV both ways, and nothing else is sent."""
    found = []
    expected: set[MessageKey] = set()
    for early, late in sorted(edges):
        if plan.stages[early].rank != plan.stages[late].rank:
            for m in range(plan.job.microbatches):
                expected.add((early, late, m))
                expected.add((late, early, m))
    for side, ends in (("SEND", index.sends), ("RECV", index.recvs)):
        if expected != ends.keys():
            for key in sorted(expected - ends.keys()):
                end = key[0] if side == "SEND" else key[1]
                found.append(f"programs.{plan.stages[end].rank}: {message_word(side, key)} is missing")
            for key in sorted(ends.keys() - expected):
                rank, position = ends[key]
                found.append(
                    f"programs.{rank}.{position}: {message_word(side, key)} has no edge between two ranks"
                )
    return found


def _order(plan: Plan, index: ProgramIndex, edges: set[tuple[int, int]]) -> list[Finding]:
    """Inside a rank: F before its backward, I before W, producer before SEND, RECV before consumer."""
    return [
        Finding(
            "order",
            f"programs.{rank}.{second}: {plan.programs[rank][second]} must come after "
            f"{plan.programs[rank][first]} (programs.{rank}.{first})",
        )
        for (rank, first), (_, second) in _pairs_in_order(plan, index, edges)
        if first > second
    ]


def _pairs_in_order(
    plan: Plan, index: ProgramIndex, edges: set[tuple[int, int]]
) -> Iterator[tuple[Place, Place]]:
    """Yield every two places of a rank of which the first must come before the second."""
    computes, sends, recvs = index.computes, index.sends, index.recvs
    microbatches = range(plan.job.microbatches)
    forward = [[computes[stage, "F", m] for m in microbatches] for stage in range(len(plan.stages))]
    backward = []
    for stage, row in enumerate(forward):
        fused = [computes.get((stage, "B", m)) for m in microbatches]
        inputs = [
            computes[stage, "I", m] if place is None else place
            for m, place in zip(microbatches, fused, strict=True)
        ]
        backward.append(inputs)
        yield from zip(row, inputs, strict=True)
        for m in microbatches:
            if fused[m] is None:
                yield inputs[m], computes[stage, "W", m]
    for early, late in sorted(edges):
        if plan.stages[early].rank == plan.stages[late].rank:
            yield from zip(forward[early], forward[late], strict=True)
            yield from zip(backward[late], backward[early], strict=True)
            continue
        for source, destination, places in ((early, late, forward), (late, early, backward)):
            for m in microbatches:
                yield places[source][m], sends[source, destination, m]
                yield recvs[source, destination, m], places[destination][m]


def _fifo(plan: Plan, index: ProgramIndex) -> list[Finding]:
    """The k-th SEND of a directed rank pair is the k-th RECV there; the first mismatch of each pair."""
    found = []
    streams: dict[tuple[int, int], tuple[list[MessageKey], list[MessageKey]]] = {}
    for side, ends in enumerate((index.sends, index.recvs)):
        for key in ends:  # in program order
            pair = plan.stages[key[0]].rank, plan.stages[key[1]].rank
            streams.setdefault(pair, ([], []))[side].append(key)
    for (source, destination), (sent, received) in sorted(streams.items()):
        for number, (send, recv) in enumerate(zip(sent, received, strict=True)):
            if send != recv:
                sent_at, received_at = index.sends[send][1], index.recvs[recv][1]
                found.append(
                    f"from rank {source} to rank {destination}: message {number} is sent as "
                    f"{message_word('SEND', send)} (programs.{source}.{sent_at}) but received as "
                    f"{message_word('RECV', recv)} (programs.{destination}.{received_at})"
                )
                break
    return [Finding("fifo", message) for message in found]


def _deadlock(plan: Plan, index: ProgramIndex, edges: set[tuple[int, int]]) -> list[Finding]:
    cycle = find_cycle(index)
    if cycle is None:
        return []
    return [Finding("deadlock", f"these wait for each other: {' -> '.join([*cycle, cycle[0]])}")]
