"""The measure of difference, and what the report says of it."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from octoplan_runtime import RankReport, RunReport
from octoplan_runtime.kinds import KindReport
from octoplan_runtime.verification import Worst, relative_error


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.5], [1.0, -4.0], 0.125),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 1e-30], [0.0, 0.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_relative_error_is_the_contracts(found, expected, error):
    assert relative_error(torch.tensor(found), torch.tensor(expected)) == error


def test_the_worst_is_kept_and_nan_is_worse_than_all():
    worst = Worst()
    for number, error in enumerate((0.0, 0.5, 0.25)):
        worst.update(error, number)
    assert (worst.error, worst.parameter) == (0.5, 1)
    worst.update(math.nan, 7)
    worst.update(1.0, 8)
    assert (worst.error, worst.parameter) == (math.inf, 7)


def report(**changes):
    rank = RankReport(0, [0, 1], 3, 1234, 0.75, 0.25, 4096, 2e-7, "layers.0.weight")
    values = {
        "loss": 1.5,
        "losses": [2.0, 1.5],
        "max_relative_gradient_error": 2e-7,
        "max_relative_loss_error": 0.0,
        "tolerance": 1e-5,
        "gradients_match": True,
        "worst_parameter": "layers.0.weight",
        "measured_makespan_s": 1.0,
        "predicted_makespan_s": 0.9,
        "scale": 1.0,
        "kinds": {"F": KindReport(2, 0.5, 0.4, 0.25), "SEND_F": KindReport(1, 0.1, 0.0, None)},
        "ranks": [rank],
        "ops": [(0, "0F0", 0.0, 1.0)],
    }
    return RunReport(**{**values, **changes})


def test_json_comes_back_as_it_went():
    assert RunReport.from_json(report().to_json()) == report()


def test_json_holds_no_infinity_and_no_timeline_unless_asked():
    document = json.loads(report(max_relative_gradient_error=math.inf).to_json(timeline=False))
    assert document["max_relative_gradient_error"] is None
    assert "ops" not in document


def test_people_read_the_verdict_in_the_last_line():
    assert report().lines()[-1] == "gradients match"
    differ = report(gradients_match=False, max_relative_gradient_error=0.5).lines()[-1]
    assert differ.startswith("gradients differ: layers.0.weight by 0.5")
    silent = report(gradients_match=None, tolerance=None, max_relative_gradient_error=None).lines()
    assert not any("gradients" in line for line in silent)


def test_the_table_has_one_row_a_rank():
    second = dataclasses.replace(report().ranks[0], rank=1, max_relative_gradient_error=None)
    rows = report(ranks=[report().ranks[0], second]).lines()
    assert rows[1].split() == ["0", "2", "3", "1,234", "0.75", "s", "0.25", "s", "2e-07"]
    assert rows[2].split()[-1] == "infinity"
