"""``perfetto``: the simulated plan as a trace that ui.perfetto.dev and chrome://tracing open.

A process per rank; in it a track of compute ops, tracks of what it sends, by peer, and its memory as a counter. An
arrow leads from every transfer to the op that waits for it. Times are microseconds, to the nanosecond.

The format is Chrome's trace events: ``X`` slices, ``s`` and ``f`` ends of an arrow, ``C`` counters, ``M`` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octoplan.checking import simulate
from octoplan.exports.request import ExportRequest
from octoplan.picture import op_times, transfer_times
from octoplan.simulator import Simulation
from octoplan_schemas import parse_word
from octoplan_schemas.op_words import SEND_FORWARD

FORMAT = "perfetto"
_COMPUTE_TRACK = 0
_NAMES = {"F": "forward", "I": "backward for input", "W": "backward for weights", "B": "backward"}
_Event = dict[str, Any]


def files(request: ExportRequest) -> dict[Path, str]:
    """Return the one file."""
    simulation = simulate(request.plan, request.model, request.cluster)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"plan": request.title(), "makespan_s": simulation.makespan_s},
        "traceEvents": list(trace_events(request, simulation)),
    }
    return {request.path: json.dumps(document, allow_nan=False) + "\n"}


def trace_events(request: ExportRequest, simulation: Simulation) -> Iterator[_Event]:
    """Yield every event of the trace."""
    yield from _rank_names(request)
    yield from _compute_slices(simulation)
    yield from _transfers(simulation)
    yield from _memory(simulation)


def _rank_names(request: ExportRequest) -> Iterator[_Event]:
    devices = () if request.cluster is None else request.cluster.devices
    for rank in range(request.plan.num_ranks):
        name = f"rank {rank} ({devices[rank].name})" if devices else f"rank {rank}"
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
        yield _track_name(rank, _COMPUTE_TRACK, "compute")


def _track_name(rank: int, track: int, name: str) -> _Event:
    return {"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}}


def _compute_slices(simulation: Simulation) -> Iterator[_Event]:
    for rank, stage, kind, microbatch, start_s, end_s in op_times(simulation):
        args = {"stage": stage, "microbatch": microbatch, "kind": _NAMES[kind]}
        yield _slice(f"{stage}{kind}{microbatch}", rank, _COMPUTE_TRACK, start_s, end_s, args)


def _slice(name: str, rank: int, track: int, start_s: float, end_s: float, args: dict[str, Any]) -> _Event:
    start = microseconds(start_s)
    return {
        "ph": "X",
        "name": name,
        "cat": "compute" if track == _COMPUTE_TRACK else "transfer",
        "pid": rank,
        "tid": track,
        "ts": start,
        "dur": round(microseconds(end_s) - start, 3),
        "args": args,
    }


def microseconds(seconds: float) -> float:
    """Return microseconds, rounded to nanoseconds, the trace's resolution."""
    return round(seconds * 1e6, 3)


def _transfers(simulation: Simulation) -> Iterator[_Event]:
    """Yield slices and arrows, and the names of the tracks that they need."""
    consumers = {
        (stage, "F" if kind == "F" else "B", microbatch): (rank, start_s)
        for rank, stage, kind, microbatch, start_s, _ in op_times(simulation)
        if kind != "W"
    }
    tracks = _SendTracks()
    by_start = sorted(transfer_times(simulation), key=lambda transfer: transfer[3])
    for number, (rank, peer, text, start_s, arrival_s) in enumerate(by_start):
        track = tracks.take(rank, peer, start_s, arrival_s)
        yield _slice(text, rank, track, start_s, arrival_s, {"to_rank": peer})
        word = parse_word(text)
        direction = "F" if word.kind == SEND_FORWARD else "B"
        consumer_rank, consumer_start_s = consumers[word.other_stage, direction, word.microbatch]
        arrow = {"name": "transfer", "cat": "transfer", "id": number}
        yield {"ph": "s", **arrow, "pid": rank, "tid": track, "ts": microseconds(start_s)}
        end = {"pid": consumer_rank, "tid": _COMPUTE_TRACK, "ts": microseconds(consumer_start_s)}
        yield {"ph": "f", "bp": "e", **arrow, **end}
    yield from tracks.names


class _SendTracks:
    """Tracks of what ranks send: one per peer, and more where transfers to it overlap (latency lets them)."""

    def __init__(self) -> None:
        self.names: list[_Event] = []
        #: By rank and peer: each track, and until when it is taken.
        self._until_s: dict[tuple[int, int], dict[int, float]] = {}
        self._num_tracks: dict[int, int] = {}

    def take(self, rank: int, peer: int, start_s: float, end_s: float) -> int:
        """Return a track that is free from ``start_s`` on, and take it until ``end_s``; starts must not decrease."""
        tracks = self._until_s.setdefault((rank, peer), {})
        free = next((track for track, until_s in tracks.items() if until_s <= start_s), None)
        if free is None:
            free = self._num_tracks[rank] = self._num_tracks.get(rank, _COMPUTE_TRACK) + 1
            suffix = f", {len(tracks) + 1}" if tracks else ""
            self.names.append(_track_name(rank, free, f"to rank {peer}{suffix}"))
        tracks[free] = end_s
        return free


def _memory(simulation: Simulation) -> Iterator[_Event]:
    for rank, (times_s, values) in enumerate(simulation.memory_curves()):
        for time_s, value in zip(times_s.tolist(), values.tolist(), strict=True):
            yield {
                "ph": "C",
                "name": "memory",
                "pid": rank,
                "tid": _COMPUTE_TRACK,
                "ts": microseconds(time_s),
                "args": {"bytes": value},
            }
