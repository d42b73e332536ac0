"""``perfetto``: well-formed trace events, and the same times, transfers and memory as the plan's prediction."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import octoplan
from octoplan_schemas import Plan
from tests.octoplan.exports.samples import block_model, compiled, pair

KEYS = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "pid", "tid", "ts", "args"},
}


@pytest.fixture(scope="module", params=[{}, {"strategy": "gpipe"}, {"strategy": "zb-v"}])
def plan(request: pytest.FixtureRequest) -> Plan:
    return compiled(block_model(9), pair(3), 6, **request.param)


@pytest.fixture
def events(plan: Plan, tmp_path: Path) -> list[dict[str, Any]]:
    octoplan.export_plan(plan, "perfetto", tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document["displayTimeUnit"] == "ms"
    rows: list[dict[str, Any]] = document["traceEvents"]
    return rows


def of_kind(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def test_every_event_has_its_fields_and_tracks_do_not_overlap(events: list[dict[str, Any]]) -> None:
    named = {(event["pid"], event["tid"]) for event in of_kind(events, "M") if event["name"] == "thread_name"}
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            continue
        assert set(event) == {"ph", *KEYS[event["ph"]]}
        assert event["ts"] >= 0
        assert (event["pid"], event["tid"]) in named
        if event["ph"] == "X":
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        for (_, end), (start, _) in pairwise(sorted(slices)):
            assert start >= end - 1e-6


def test_ops_take_their_recorded_time_and_fill_the_makespan(plan: Plan, events: list[dict[str, Any]]) -> None:
    computes = [event for event in of_kind(events, "X") if event["cat"] == "compute"]
    words = {word for program in plan.programs for word in program if "_" not in word}
    assert {event["name"] for event in computes} == words
    assert len(computes) == len(words)
    assert max(event["ts"] + event["dur"] for event in computes) == pytest.approx(
        1e6 * plan.predicted.makespan_s, abs=0.01
    )
    for rank, entry in enumerate(plan.predicted.ranks):
        busy = sum(event["dur"] for event in computes if event["pid"] == rank)
        assert busy == pytest.approx(1e6 * entry.busy_s, abs=0.1)


def test_arrows_lead_from_every_send_to_the_op_that_waits_for_it(
    plan: Plan, events: list[dict[str, Any]]
) -> None:
    sends = [(rank, word) for rank, words in enumerate(plan.programs) for word in words if "SEND" in word]
    slices = {(event["pid"], event["name"]): event for event in of_kind(events, "X")}
    starts = {event["id"]: event for event in of_kind(events, "s")}
    ends = {event["id"]: event for event in of_kind(events, "f")}
    assert len(starts) == len(of_kind(events, "s")) == len(sends)
    assert set(starts) == set(ends)
    at = {(event["pid"], event["tid"], event["ts"]): event for event in of_kind(events, "X")}
    reached = set()
    for number, start in starts.items():
        transfer = at[start["pid"], start["tid"], start["ts"]]
        consumer = at[ends[number]["pid"], ends[number]["tid"], ends[number]["ts"]]
        stage, microbatch = (
            int(text) for text in transfer["name"].replace("SEND_", "").replace("B", "F").split("F")
        )
        step = 1 if "SEND_F" in transfer["name"] else -1
        assert consumer["args"]["stage"] == stage + step
        assert consumer["args"]["microbatch"] == microbatch
        assert consumer["pid"] == transfer["args"]["to_rank"]
        assert consumer["ts"] >= transfer["ts"] + transfer["dur"] - 1e-6
        producer = "F" if step == 1 else ("B" if (start["pid"], f"{stage}B{microbatch}") in slices else "I")
        made = slices[start["pid"], f"{stage}{producer}{microbatch}"]
        assert transfer["ts"] >= made["ts"] + made["dur"] - 1e-6
        reached.add((start["pid"], transfer["name"]))
    assert reached == set(sends)


def test_the_counter_peaks_where_the_prediction_does(plan: Plan, events: list[dict[str, Any]]) -> None:
    for rank, entry in enumerate(plan.predicted.ranks):
        values = [event["args"]["bytes"] for event in of_kind(events, "C") if event["pid"] == rank]
        assert max(values) == pytest.approx(entry.peak_bytes)


def test_devices_are_named_where_the_cluster_is_known(tmp_path: Path) -> None:
    model, cluster = block_model(4), pair(2)
    plan = compiled(model, cluster, 2, strategy="1f1b")
    octoplan.export_plan(plan, "perfetto", tmp_path / "trace.json", model=model, cluster=cluster)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["rank 0 (gpu0)", "rank 1 (gpu1)"]
