"""The study believes no worker: a plan that was tampered with is wrong, whatever it says of itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octoplan.study import StudyOptions
from octoplan.study.answer import answer
from octoplan.study.cells import Cell
from octoplan.study.recheck import record_of
from octoplan.study.runner import study_cells
from tests.octoplan.study.suites import make_suite, write_suite

REST = {"worker_peak_bytes": 1, "machine": "m", "versions": "v"}


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cell, dict[str, Any]]:
    """Return a cell and a worker's honest answer."""
    suite = make_suite([{"name": "a", "search": ["partition", "order"]}])
    path: Path = write_suite(tmp_path_factory.mktemp("suite"), suite)
    (cell,) = study_cells(path, StudyOptions())[1]
    return cell, {**answer(cell.task()), **REST}


def test_an_honest_answer_is_simulated_again(question: tuple[Cell, dict[str, Any]]) -> None:
    cell, outcome = question
    record = record_of(cell, outcome)
    predicted = outcome["plan"]["predicted"]
    assert record["status"] == "ok"
    assert record["makespan_s"] == pytest.approx(predicted["makespan_s"], rel=1e-12)
    assert record["peak_bytes"] == max(rank["peak_bytes"] for rank in predicted["ranks"])
    assert record["peak_dynamic_bytes"] == max(
        rank["peak_bytes"] - rank["state_bytes"] for rank in predicted["ranks"]
    )
    assert record["gap"] == pytest.approx(record["makespan_s"] / record["lower_bound_s"] - 1)
    assert record["seconds_to_first"] <= record["seconds_to_1pct"] <= record["seconds"]
    last = record["trace"][-1][1]
    assert last >= record["makespan_s"] * (1 - 1e-9)


def shorten(plan: dict[str, Any]) -> None:
    plan["predicted"]["makespan_s"] *= 0.9


def raise_bound(plan: dict[str, Any]) -> None:
    plan["predicted"]["lower_bound_s"] = 2 * plan["predicted"]["makespan_s"]


def drop_word(plan: dict[str, Any]) -> None:
    plan["programs"][0].pop()


def swap_words(plan: dict[str, Any]) -> None:
    program = plan["programs"][0]
    program[0], program[-1] = program[-1], program[0]


def fewer_microbatches(plan: dict[str, Any]) -> None:
    plan["job"]["microbatches"] = 2


def lift_limit(plan: dict[str, Any]) -> None:
    plan["job"]["memory_limit"] = None


def other_model(plan: dict[str, Any]) -> None:
    plan["model"]["sha256"] = "0" * 64


def no_stages(plan: dict[str, Any]) -> None:
    plan["stages"] = []


@pytest.mark.parametrize(
    "tamper",
    [shorten, raise_bound, drop_word, swap_words, fewer_microbatches, lift_limit, other_model, no_stages],
)
def test_a_plan_that_was_tampered_with_is_wrong(
    question: tuple[Cell, dict[str, Any]], tamper: Callable[[dict[str, Any]], None]
) -> None:
    cell, honest = question
    outcome = copy.deepcopy(honest)
    tamper(outcome["plan"])
    record = record_of(cell, outcome)
    assert record["status"] == "wrong"
    assert record["message"]
    assert record["makespan_s"] != pytest.approx(outcome["plan"]["predicted"]["makespan_s"] * 0.9)


def test_more_memory_than_was_asked_for_is_wrong(tmp_path: Path) -> None:
    """The same plan, made without a limit, as the answer to a cell that has one."""
    loose = make_suite([{"name": "a", "strategy": "gpipe"}])
    loose["instances"][0] |= {"microbatches": [8], "memory_limits": ["none", "1f1b:1.0"]}
    free, limited = study_cells(write_suite(tmp_path, loose), StudyOptions())[1]
    assert answer(limited.task())["status"] == "infeasible"
    outcome = {**answer(free.task()), **REST}
    assert record_of(free, outcome)["status"] == "ok"
    assert record_of(limited, outcome)["status"] == "wrong"
    outcome["plan"]["job"]["memory_limit"] = "1f1b:1.0"
    record = record_of(limited, outcome)
    assert record["status"] == "wrong"
    assert "rank" in record["message"]
