"""The report: one well-formed page that loads nothing, whatever the names are."""

from __future__ import annotations

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from octoplan.study import load_results, load_trace, write_report
from octoplan.study.results import RESULTS
from octoplan_schemas import InputError

VOID = {"meta", "img", "br", "hr", "link", "input"}
EVIL = "x<script>alert(1)</script>&\"'$\\alpha_{$ =1+1"


class Page(HTMLParser):
    """Collects elements, text and ids, and insists that tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def folder(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the finished study with its report."""
    copy = tmp_path_factory.mktemp("report") / "study"
    shutil.copytree(finished, copy)
    assert write_report(copy) == copy / "report.html"
    return copy


@pytest.fixture(scope="module")
def evil(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same study with names that a stranger may have chosen."""
    copy = tmp_path_factory.mktemp("evil") / "study"
    shutil.copytree(finished, copy)
    suite = json.loads((copy / "suite.json").read_text())
    suite |= {"description": EVIL, "name": "a</title><script>alert(2)</script>", "references": [EVIL, "1f1b"]}
    suite["methods"][1]["name"] = EVIL
    (copy / "suite.json").write_text(json.dumps(suite))
    lines = [json.loads(line) for line in (copy / "cells.jsonl").read_text().splitlines()]
    for line in lines:
        line["instance"] = EVIL + line["instance"]
        line["method"] = EVIL if line["method"] == "1f1b:balanced" else line["method"]
        if line["method"] == "rule":
            line |= {"status": "error", "message": EVIL, "makespan_s": None}
    (copy / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report(copy)
    return copy


@pytest.mark.parametrize("which", ["folder", "evil"])
def test_the_page_is_well_formed_and_loads_nothing(which: str, request: pytest.FixtureRequest) -> None:
    text = (request.getfixturevalue(which) / "report.html").read_text()
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in ("src", "href", "data", "action"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/svg+xml;base64,")), value[:50]
        assert not any(name.startswith("on") for name in attributes)
    assert {a["href"] for a in page.all("a")} <= {f"#{name}" for name in ids}
    assert not page.all("script")
    assert not page.all("link")
    assert "@import" not in text
    assert "url(" not in text
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("which", ["folder", "evil"])
def test_pictures_are_inlined_described_and_inert(which: str, request: pytest.FixtureRequest) -> None:
    page = Page((request.getfixturevalue(which) / "report.html").read_text())
    assert len(page.all("img")) == 4
    for image in page.all("img"):
        assert len(image["alt"] or "") > 40
        data = base64.b64decode((image["src"] or "").partition(",")[2])
        root = ElementTree.fromstring(data)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        for element in root.iter():
            assert not element.tag.endswith(("}script", "}foreignObject", "}a"))
            for name, value in element.attrib.items():
                assert not name.endswith("href") or value.startswith("#")


def test_strangers_names_are_text(evil: Path) -> None:
    page = Page((evil / "report.html").read_text())
    text = "".join(page.text)
    assert EVIL in text
    assert "a</title><script>alert(2)</script>" in text
    for path in (evil / "tables").glob("*.md"):
        assert "<script" not in path.read_text()


def test_tables_have_captions_and_headings(folder: Path) -> None:
    page = Page((folder / "report.html").read_text())
    names = [tag for tag, _ in page.elements]
    assert names.count("caption") >= 5
    assert all("scope" in heading for heading in page.all("th"))
    assert page.all("html")[0]["lang"] == "en"
    headings = [name for name in names if name in ("h1", "h2")]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1


def test_latex_is_escaped_and_balanced(evil: Path) -> None:
    names = {path.stem for path in (evil / "tables").glob("*.tex")}
    assert {"summary", "dimensions", "failures", "makespans", "speedup-over-1f1b"} <= names
    for path in (evil / "tables").glob("*.tex"):
        text = path.read_text()
        assert text.isascii()
        for word in ("toprule", "midrule", "bottomrule"):
            assert text.count(f"\\{word}") == 1
        columns = re.search(r"\\begin\{tabular\}\{(l?r*)\}", text)
        assert columns is not None
        body = text[text.index("\\toprule") : text.index("\\bottomrule")]
        for line in body.splitlines():
            if line.endswith("\\\\"):
                assert len(re.findall(r"(?<!\\)&", line)) == len(columns[1]) - 1
        plain = re.sub(r"\\(text[a-z]+\{\}|[&%$#_{}])", "", body)
        assert not re.search(r"[%$#_{}~^<>|\"]", plain), plain
        assert set(re.findall(r"\\[a-z]+", plain)) <= {"\\toprule", "\\midrule", "\\bottomrule"}


def test_pictures_for_a_paper_are_pdf_files(folder: Path) -> None:
    files = sorted(path.name for path in (folder / "figures").iterdir())
    assert files == ["anytime.pdf", "memory.pdf", "profile.pdf", "scaling-ranks.pdf"]
    for name in files:
        data = (folder / "figures" / name).read_bytes()
        assert data.startswith(b"%PDF-")
        assert data.rstrip().endswith(b"%%EOF")


def test_results_are_one_row_per_cell(folder: Path) -> None:
    parquet, csv, trace = (folder / name for name in RESULTS)
    frame = pd.read_parquet(parquet)
    pd.testing.assert_frame_equal(frame, load_results(folder), check_dtype=False)
    assert len(pd.read_csv(csv)) == len(frame) == len((folder / "cells.jsonl").read_text().splitlines())
    needed = (
        "instance method seed makespan_s lower_bound_s gap bubble_fraction peak_bytes seconds_to_first "
        "seconds_to_1pct seconds status versions machine"
    )
    assert set(needed.split()) <= set(frame.columns)
    solved = frame[frame.status == "ok"]
    assert (solved.makespan_s / solved.lower_bound_s - 1).to_numpy() == pytest.approx(solved.gap.to_numpy())
    steps = pd.read_parquet(trace)
    pd.testing.assert_frame_equal(steps, load_trace(folder), check_dtype=False)
    for cell, rows in steps.groupby("cell"):
        assert rows.makespan_s.is_monotonic_decreasing
        assert rows.seconds.is_monotonic_increasing
        final = solved.loc[solved.cell == cell, "makespan_s"]
        assert rows.makespan_s.iloc[-1] == pytest.approx(final.iloc[0], rel=0.2)


def test_no_machine_or_user_name_is_recorded(folder: Path) -> None:
    text = (folder / "cells.jsonl").read_text()
    import getpass
    import platform

    assert platform.node() == "" or platform.node() not in text
    assert f'"{getpass.getuser()}"' not in text


def test_a_study_without_a_finished_cell_has_no_report(folder: Path, tmp_path: Path) -> None:
    for name in ("suite.json", "order.json"):
        shutil.copy(folder / name, tmp_path / name)
    (tmp_path / "cells.jsonl").write_text("")
    with pytest.raises(InputError, match="no cell is finished"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="holds no study"):
        write_report(tmp_path / "nowhere")
