"""The live display: what is known is shown, what is not is left out."""

from __future__ import annotations

import io

from rich.console import Console
from rich.spinner import Spinner

import octoplan
from octoplan.cli.live import render


def shown(progress: octoplan.Progress, *, ends: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(render(progress, Spinner("dots"), ends=ends))
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def test_everything() -> None:
    text = shown(octoplan.Progress("search", 1.1, 1.0, 4200, 0.5, "partition", 1234.5, 5.2))
    for part in ("search", "best 1,100.00 ms", "bound 1,000.00 ms", "gap 10.00%", "5 s left"):
        assert part in text
    assert "last gain from partition" in text
    assert "1,234 evaluations/s, 4,200 in all" in text


def test_nothing_yet() -> None:
    text = shown(octoplan.Progress("bound"))
    assert "bound" in text
    for part in ("best", "gap", "left", "evaluations"):
        assert part not in text


def test_a_bound_of_zero_has_no_gap() -> None:
    text = shown(octoplan.Progress("search", 1.0, 0.0))
    assert "best 1,000.00 ms" in text
    assert "gap" not in text


def test_after_ctrl_c() -> None:
    assert "ending with the best plan so far" in shown(octoplan.Progress("search"), ends=True)
