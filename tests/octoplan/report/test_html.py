"""The page: it carries every op, loads nothing, and lets no name become markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from octoplan.report import Timeline, style
from octoplan.report.html import timeline_page
from tests.octoplan.report.synthetic import pipeline_timeline

_VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """Collects elements, their attributes and their text; refuses markup that does not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def data_of(page: Page) -> Any:
    return json.loads(page.texts["script"][0])


def test_page_carries_every_op_with_its_stage_colour_and_times() -> None:
    timeline = pipeline_timeline(3, 4, stages_per_rank=2)
    page = Page(timeline_page(timeline))
    assert page.open == []
    data = data_of(page)
    levels = timeline.stage_levels()
    found = set()
    for rank, row in enumerate(data["rows"]):
        assert [op[2] for op in row] == sorted(op[2] for op in row)
        for group, microbatch, start, end in row:
            kind, stage = data["groups"][group]["kind"], data["groups"][group]["stage"]
            assert data["groups"][group]["colour"] == style.hex_colour(style.op_colour(kind, levels[stage]))
            found.add((rank, stage, kind, microbatch, round(start, 9), round(end, 9)))
    assert found == {
        (op.rank, op.stage, op.kind, op.microbatch, round(op.start_s, 9), round(op.end_s, 9))
        for op in timeline.ops
    }
    assert data["makespan"] == timeline.makespan_s
    assert [message[4] for message in data["transfers"]] == [message.word for message in timeline.transfers]
    assert [curve["peak"] for curve in data["memory"]] == [max(curve.bytes) for curve in timeline.memory]
    assert data["stages"] == list(timeline.stage_labels)


def test_page_loads_nothing_from_elsewhere() -> None:
    text = timeline_page(pipeline_timeline(2, 2))
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|import\(", text)


@pytest.mark.parametrize(
    "name",
    [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "</title><b>",
        "<!--<script>",
        "\"'&amp;",
        "@DATA@ @TITLE@ \\1 \\u003c",
        "a\u2028b\0c",
    ],
)
def test_names_stay_text(name: str) -> None:
    plain = Page(timeline_page(pipeline_timeline(2, 2)))
    timeline = replace(
        pipeline_timeline(2, 2), title=name, rank_labels=(name, name), stage_labels=(name, name)
    )
    page = Page(timeline_page(timeline))
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    assert page.tags == plain.tags
    assert page.attributes == plain.attributes
    assert page.texts["title"] == page.texts["h1"] == [shown]
    data = data_of(page)
    assert data["title"] == shown
    assert data["ranks"] == data["stages"] == [shown, shown]


def test_script_never_writes_markup_from_data() -> None:
    script = Page(timeline_page(pipeline_timeline(2, 2))).texts["script"][1]
    assert "textContent" in script
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_many_ops_stay_small() -> None:
    few = pipeline_timeline(2, 4)
    ops = tuple(
        replace(op, start_s=op.start_s + shift / 3, end_s=op.end_s + shift / 3)
        for shift in range(2_000)
        for op in few.ops
    )
    timeline = Timeline("many", 2, ops[-1].end_s, 0.0, ops)
    text = timeline_page(timeline)
    assert sum(len(row) for row in data_of(Page(text))["rows"]) == len(ops) == 48_000
    assert len(text) < 60 * len(ops)
