"""The store: every finished cell is one JSON line in ``cells.jsonl``, on disk before the next one counts.

A process that is killed at any moment leaves at most one torn line, the last; opening the store cuts it off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from octoplan_schemas import InputError, Study
from octoplan_schemas.files import parse_json, read_json, write_text

CELLS = "cells.jsonl"
SUITE = "suite.json"
ORDER = "order.json"


class Store:
    """An open store; one process at a time may have it open."""

    def __init__(self, folder: Path, stream: BinaryIO, records: dict[str, dict[str, Any]]) -> None:
        self._stream = stream
        self.folder = folder
        #: What is on disk, by the cell's identity.
        self.records = records

    def append(self, record: dict[str, Any]) -> None:
        """Write a finished cell, and return when it is on the disk."""
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self._stream.write(line)
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.records[record["cell"]] = record


@contextmanager
def open_store(folder: Path, suite: Study, order: list[str]) -> Iterator[Store]:
    """Open the store of a study for writing, and make the folder if it is not there.

    Parameters
    ----------
    order:
        Identities of the suite's cells. Other cells may lie in the store, from an earlier form of the suite.

    Raises
    ------
    InputError
        If the folder holds another suite's study or cannot be written, if a line is damaged, or another process
        writes to it.
    """
    _make_folder(folder)
    path = folder / CELLS
    try:
        stream = path.open("ab")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    with stream:
        _lock(stream, path)
        _claim(folder, suite)
        write_text(folder / ORDER, json.dumps(order) + "\n")
        _cut_torn_line(path)
        yield Store(folder, stream, read_records(folder))


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the finished cells of a study by identity; a torn last line is passed over.

    Raises
    ------
    InputError
        If there is no study, or a line is damaged.
    """
    path = folder / CELLS
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        raise InputError(
            "holds no study; octoplan study SUITE -o DIR makes one", source=str(folder)
        ) from None
    records = {}
    for number, line in enumerate(lines[:-1], start=1):
        record = parse_json(line.decode(errors="replace"), source=f"{path} line {number}")
        if not isinstance(record, dict) or not isinstance(record.get("cell"), str):
            raise InputError("is not a cell; remove the line", source=f"{path} line {number}")
        records[record["cell"]] = record
    return records


def finished_records(folder: Path) -> list[dict[str, Any]]:
    """Return the finished cells of a study in the suite's order, without those of an earlier form of the suite."""
    records = read_records(folder)
    return [records[cell] for cell in read_order(folder) if cell in records]


def read_order(folder: Path) -> list[str]:
    """Return the identities of all cells of the suite, finished or not."""
    order = read_json(folder / ORDER)
    if not isinstance(order, list) or not all(isinstance(cell, str) for cell in order):
        raise InputError("is no list of cells; run the study again", source=str(folder / ORDER))
    return order


def read_suite(folder: Path) -> Study:
    """Return the suite of a study."""
    path = folder / SUITE
    if not path.exists():
        raise InputError("holds no study; octoplan study SUITE -o DIR makes one", source=str(folder))
    return Study.from_document(read_json(path), source=str(path))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(folder)) from None


def _claim(folder: Path, suite: Study) -> None:
    """Write the suite down; refuse a folder in which another one's study lies."""
    if (folder / SUITE).exists():
        found = read_suite(folder)
        if found.name != suite.name:
            raise InputError(
                f"holds the study of {found.name!r}, not of {suite.name!r}; choose another folder",
                source=str(folder),
            )
    write_text(folder / SUITE, json.dumps(suite.to_document(), indent=1) + "\n")


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def _lock(stream: BinaryIO, path: Path) -> None:
    """Take the lock, which ends with the process however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody must start two studies in one folder
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError("another study writes to it; wait for it or stop it", source=str(path)) from None
