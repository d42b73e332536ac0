"""The store: what is on disk survives, what is torn is cut off, and two studies do not mix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octoplan.study.store import finished_records, open_store, read_records
from octoplan_schemas import InputError
from tests.octoplan.study.suites import make_suite, parse

SUITE = parse(make_suite([{"name": "1f1b", "strategy": "1f1b"}]))


def fill(folder: Path, count: int) -> None:
    with open_store(folder, SUITE, [str(number) for number in range(count)]) as store:
        for number in range(count):
            store.append({"cell": str(number), "value": number})


@pytest.mark.parametrize("torn", [b"{", b'{"cell": "9", "value', b"\xff\xfe", b'{"cell": "9"}'])
def test_a_torn_last_line_is_ignored_and_then_cut_off(tmp_path: Path, torn: bytes) -> None:
    fill(tmp_path, 3)
    path = tmp_path / "cells.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert set(read_records(tmp_path)) == {"0", "1", "2"}
    with open_store(tmp_path, SUITE, ["0"]) as store:
        assert set(store.records) == {"0", "1", "2"}
        assert path.read_bytes() == whole
        store.append({"cell": "3"})
    assert len(read_records(tmp_path)) == 4


def test_every_length_of_a_file_is_a_store(tmp_path: Path) -> None:
    """Wherever a crash cuts the file, what is left are the cells whose lines are whole."""
    fill(tmp_path, 3)
    path = tmp_path / "cells.jsonl"
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with open_store(tmp_path, SUITE, []) as store:
            assert len(store.records) == whole[:length].count(b"\n")


@pytest.mark.parametrize("line", ["not json", "[1]", "{}", '{"cell": 1}', '{"cell": NaN}'])
def test_a_damaged_line_in_the_middle_is_told(tmp_path: Path, line: str) -> None:
    fill(tmp_path, 1)
    path = tmp_path / "cells.jsonl"
    path.write_text(path.read_text() + line + "\n" + json.dumps({"cell": "5"}) + "\n")
    with pytest.raises(InputError, match="line 2"):
        read_records(tmp_path)


def test_a_line_is_in_the_file_before_append_returns(tmp_path: Path) -> None:
    with open_store(tmp_path, SUITE, ["a"]) as store:
        store.append({"cell": "a"})
        assert (tmp_path / "cells.jsonl").read_text() == '{"cell":"a"}\n'


def test_only_one_study_writes_to_a_folder(tmp_path: Path) -> None:
    with (
        open_store(tmp_path, SUITE, []),
        pytest.raises(InputError, match="another study"),
        open_store(tmp_path, SUITE, []),
    ):
        pass
    with open_store(tmp_path, SUITE, []):
        pass


def test_the_folder_of_another_suite_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    other = parse({**make_suite([{"name": "1f1b", "strategy": "1f1b"}]), "name": "other"})
    with pytest.raises(InputError, match="holds the study of 'tiny'"), open_store(tmp_path, other, []):
        pass


def test_results_follow_the_suite_not_the_order_of_finishing(tmp_path: Path) -> None:
    with open_store(tmp_path, SUITE, ["a", "b", "c"]) as store:
        for cell in ("c", "stale", "a"):
            store.append({"cell": cell})
    assert [record["cell"] for record in finished_records(tmp_path)] == ["a", "c"]


def test_a_folder_without_a_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no study"):
        read_records(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"), open_store(tmp_path / "file", SUITE, []):
        pass
