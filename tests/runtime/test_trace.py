"""A measured trace goes through its file into a picture with the prediction below it."""

from __future__ import annotations

import json
import random

import pytest

import octoplan
from octoplan.cli import main
from octoplan.picture import measured_timeline
from octoplan.report.figure import timeline_figure
from octoplan.report.html import page_data
from octoplan.trace_file import load_trace
from octoplan_runtime.emulation import EmulatedCosts, predicted_ops
from octoplan_runtime.kinds import compare_kinds
from octoplan_runtime.trace import shifted, write_trace
from octoplan_schemas import InputError, save
from tests.runtime import plans
from tests.runtime.test_emulation import costed

SCALE = 2.0


@pytest.fixture
def plan():
    rng = random.Random(3)
    return costed(plans.random_plan(rng, 6, 3), rng)


@pytest.fixture
def trace_file(plan, tmp_path):
    """Measured: every op a tenth longer than predicted, on a clock that started long ago."""
    path = tmp_path / "trace.json"
    predicted = predicted_ops(plan, EmulatedCosts.of(plan, SCALE))
    measured = [(rank, word, 500 + 1.1 * start, 500 + 1.1 * end) for rank, word, start, end in predicted]
    receives = [(1, "1RECV_F0", 500.0, 501.0)]
    write_trace(path, plan, shifted(measured + receives), predicted, SCALE)
    return path


def test_the_picture_has_the_measured_row_above_the_predicted_one(plan, trace_file):
    simulation = octoplan.simulate(plan)
    trace = load_trace(trace_file, plan)
    timeline = measured_timeline(plan, octoplan.timeline_of(plan, simulation), trace)
    assert timeline.num_ranks == 2 * plan.num_ranks
    assert timeline.rank_labels[:2] == ("rank 0, measured", "rank 0, predicted")
    assert timeline.makespan_s == pytest.approx(1.1 * SCALE * simulation.makespan_s)
    rows = {rank: {} for rank in range(timeline.num_ranks)}
    for op in timeline.ops:
        rows[op.rank][op.stage, op.kind, op.microbatch] = op
    for rank in range(plan.num_ranks):
        measured, predicted = rows[2 * rank], rows[2 * rank + 1]
        assert measured.keys() == predicted.keys()
        for key, op in measured.items():
            assert op.start_s == pytest.approx(1.1 * predicted[key].start_s)
            assert op.end_s == pytest.approx(1.1 * predicted[key].end_s)
    assert timeline.bubble_fraction == pytest.approx(simulation.bubble_fraction)


def test_the_subtitle_counts_ranks_and_not_rows(plan, trace_file):
    timeline = measured_timeline(
        plan, octoplan.timeline_of(plan, octoplan.simulate(plan)), load_trace(trace_file, plan)
    )
    texts = [text.get_text() for text in timeline_figure(timeline).texts]
    assert any("|   3 ranks, " in text for text in texts)
    data = page_data(timeline)
    assert len(data["rows"]) / data["rowsPerRank"] == 3


def test_show_draws_it(plan, trace_file, tmp_path):
    save(tmp_path / "plan.json", plan)
    arguments = [
        "show",
        str(tmp_path / "plan.json"),
        "-o",
        str(tmp_path / "a.html"),
        "--measured",
        str(trace_file),
    ]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    assert "rank 2, measured" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("format", "octoplan.trace/2", "'octoplan.trace/2' is not supported"),
        ("plan", {"sha256": "ab"}, "is a trace of another plan"),
        ("scale", 0, "must be above 0"),
        ("ops", [], "must list every compute op"),
        ("ops", [[0, "0F0", "soon", 1.0]], "must list every compute op"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(plan, trace_file, field, value, expected):
    document = json.loads(trace_file.read_text())
    document[field] = value
    trace_file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=expected):
        load_trace(trace_file, plan)


def test_kinds_are_compared_by_their_mean_durations():
    measured = [
        (0, "0F0", 0.0, 1.0),
        (1, "1F0", 1.0, 4.0),
        (0, "0SEND_F0", 1.0, 1.5),
        (1, "1RECV_F0", 0.0, 1.5),
    ]
    predicted = [(0, "0F0", 0.0, 1.0), (1, "1F0", 1.0, 2.0), (0, "0SEND_F0", 1.0, 1.0)]
    kinds = compare_kinds(measured, predicted)
    assert sorted(kinds) == ["F", "SEND_F"]
    assert (kinds["F"].count, kinds["F"].measured_s, kinds["F"].relative_error) == (2, 2.0, 1.0)
    assert kinds["SEND_F"].relative_error is None
