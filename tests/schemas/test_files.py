"""Reading refuses what is not strict JSON; writing leaves whole files or none."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from octoplan_schemas import InputError, Plan, load, save
from octoplan_schemas.files import parse_json, read_json, write_bytes, write_text
from tests.schemas.documents import EXAMPLE_PLAN


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(path, Plan)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "line 1, column 2"),
        (b'{\n "a": 1,\n}', "line 3"),
        (b"[1] [2]", "not valid JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"a": "\xe9"}', "UTF-8"),
        (b'{"a": NaN}', "NaN is not allowed"),
        (b'{"a": -Infinity}', "-Infinity is not allowed"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": 1, "a": 1}', "'a' occurs twice"),
        (b'{"x": {"b": 1, "c": 2, "b": 3}}', "'b' occurs twice"),
        (b'{"a": ' + b"7" * 5000 + b"}", "not valid JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"[]", "JSON object"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
    ],
)
def test_bad_content_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    assert words in refusal(path)


@pytest.mark.parametrize("depth", [150, 220, 600, 950, 1_500])
def test_any_depth_is_either_read_whole_or_refused(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "plan.json"
    text = json.dumps({**EXAMPLE_PLAN, "provenance": {"strategy": "x", "deep": 0}})
    path.write_text(text.replace('"deep": 0', '"deep": ' + "[" * depth + "]" * depth))
    if depth <= 150:
        save(tmp_path / "copy.json", load(path, Plan))
        assert read_json(tmp_path / "copy.json") == read_json(path)
    else:
        refusal(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.json")
    assert "cannot be read" in refusal(tmp_path)


def test_doubled_key_without_a_source() -> None:
    with pytest.raises(InputError, match=r"^the key 'k' occurs twice"):
        parse_json('{"k": 1, "k": 2}')


def test_lone_surrogate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**EXAMPLE_PLAN, "provenance": {"strategy": "\ud800"}}))
    refusal(path)


def test_writing_replaces_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")}
    assert len(modes) == 1


class Interrupted(BaseException):
    """Stands for an interrupt in the middle of a write."""


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), Interrupted()])
@pytest.mark.parametrize("step", ["chmod", "replace"])
def test_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, step: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(*arguments: object) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    expected = InputError if isinstance(failure, OSError) else Interrupted
    with pytest.raises(expected):
        save(path, Plan.from_document(EXAMPLE_PLAN))
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_unwritable_targets(tmp_path: Path) -> None:
    for target in (tmp_path / "none" / "a.json", tmp_path, tmp_path / ("n" * 300)):
        with pytest.raises(InputError, match="cannot be written"):
            write_bytes(target, b"x")
    assert list(tmp_path.iterdir()) == []
