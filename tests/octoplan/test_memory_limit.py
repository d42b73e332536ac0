"""``--memory-limit`` in all its spellings."""

from __future__ import annotations

import pytest

from octoplan.memory_limit import MemoryLimit
from octoplan_schemas import InputError


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("80e9", "bytes", 80e9),
        (85899345920, "bytes", 85899345920),
        ("90%", "share", 0.9),
        ("1f1b:1.5", "1f1b", 1.5),
    ],
)
def test_reads(text: str | float, kind: str, value: float) -> None:
    limit = MemoryLimit.parse(text)
    assert (limit.kind, limit.value) == (kind, pytest.approx(value))


@pytest.mark.parametrize("text", [None, "none", "None", " none "])
def test_none_lifts_the_limit(text: str | None) -> None:
    assert MemoryLimit.parse(text).kind == "none"


@pytest.mark.parametrize(
    "text", ["", "much", "-1", "0", "0%", "nan", "inf%", "1f1b:", "1f1b:x", "1f1b:-2", "9 GB"]
)
def test_refuses(text: str) -> None:
    with pytest.raises(InputError, match=r"memory_limit: .* is not a memory limit"):
        MemoryLimit.parse(text)
