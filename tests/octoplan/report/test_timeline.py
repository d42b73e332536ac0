"""`draw_timeline`: the ending chooses the format, and a file is whole or not there."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from octoplan.report import Timeline, TimelineOp, draw_timeline
from octoplan_schemas import InputError
from tests.octoplan.report.synthetic import pipeline_timeline


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        ("a.svg", b"<?xml"),
        ("a.png", b"\x89PNG\r\n\x1a\n"),
        ("a.html", b"<!DOCTYPE html>"),
        ("a.PNG", b"\x89PNG"),
    ],
)
def test_ending_chooses_the_format(tmp_path: Path, name: str, magic: bytes) -> None:
    draw_timeline(pipeline_timeline(2, 2), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.pdf", "picture", "a.svg.gz", ".svg"])
def test_other_endings_are_refused_with_the_three_that_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as error:
        draw_timeline(pipeline_timeline(2, 2), tmp_path / name)
    text = str(error.value)
    assert text.startswith(str(tmp_path / name))
    assert all(ending in text for ending in (".svg", ".png", ".html"))
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        draw_timeline(pipeline_timeline(2, 2), tmp_path / "no-such-folder" / "a.html")


def test_failure_while_drawing_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.png"
    target.write_bytes(b"old")
    broken = replace(pipeline_timeline(2, 2), ops=(TimelineOp(0, 0, "no such kind", 0, 0.0, 1.0),))
    with pytest.raises(KeyError):
        draw_timeline(broken, target)
    assert target.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_same_timeline_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        draw_timeline(pipeline_timeline(2, 3), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    "name", ["<script>&\"'--", "$x^{2$ $\\frac{a}{b}$", "tab\tnull\0bell\a", "\u540d\u524d", ""]
)
def test_any_name_makes_a_well_formed_picture(tmp_path: Path, name: str) -> None:
    timeline = replace(
        pipeline_timeline(2, 2), title=name, rank_labels=(name, name), stage_labels=(name, name)
    )
    draw_timeline(timeline, tmp_path / "a.svg")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")


def test_empty_and_instant_timelines_can_be_drawn(tmp_path: Path) -> None:
    nothing = Timeline("nothing", 1, 0.0, 0.0, ())
    instant = Timeline("instant", 2, 0.0, 0.0, (TimelineOp(0, 0, "F", 0, 0.0, 0.0),))
    for number, timeline in enumerate((nothing, instant)):
        for ending in ("svg", "png", "html"):
            draw_timeline(timeline, tmp_path / f"{number}.{ending}")
    assert len(list(tmp_path.iterdir())) == 6


def test_busy_fractions_and_stage_levels() -> None:
    ops = (
        TimelineOp(0, 0, "F", 0, 0.0, 1.0),
        TimelineOp(0, 4, "F", 0, 2.0, 4.0),
        TimelineOp(0, 2, "F", 1, 5.0, 6.0),
        TimelineOp(1, 1, "B", 2, 0.0, 8.0),
    )
    timeline = Timeline("t", 3, 8.0, 0.5, ops)
    assert timeline.busy_fractions() == [0.5, 1.0, 0.0]
    assert timeline.stage_levels() == {0: 0.0, 2: 0.5, 4: 1.0, 1: 0.0}
    assert timeline.num_microbatches == 3
    assert timeline.rank_label(2) == "rank 2"
