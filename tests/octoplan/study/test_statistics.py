"""The report's numbers, by hand."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from octoplan.study.statistics import (
    DIMENSIONS,
    dimension_values,
    dimension_worth,
    gaps_over_time,
    geometric_mean,
    label_column,
    makespans,
    performance_profile,
    scaling_axes,
    speedup,
)


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    base = {
        "status": "ok", "kind": "octoplan", "time_limit_s": math.nan, "max_evaluations": math.nan,
        "num_layers": 5, "num_ranks": 2, "microbatches": 4, "seconds": 1.0, "seconds_to_first": 0.1,
        "instance_bound_s": 1.0, "cell": "c", "memory_limit": "none",
    }  # fmt: skip
    frame = pd.DataFrame([{**base, **row} for row in rows])
    frame["label"] = label_column(frame)
    return frame


def test_seeds_of_an_instance_count_as_one_by_their_geometric_mean() -> None:
    frame = frame_of(
        [
            {"instance": "x", "method": "a", "makespan_s": 2.0},
            {"instance": "x", "method": "a", "makespan_s": 8.0},
            {"instance": "x", "method": "a", "makespan_s": math.nan, "status": "timeout"},
            {"instance": "x", "method": "r", "makespan_s": 8.0},
            {"instance": "y", "method": "r", "makespan_s": 9.0},
        ]
    )
    table = makespans(frame)
    assert table.loc["x", "a"] == pytest.approx(4.0)
    assert math.isnan(table.loc["y", "a"])
    found = speedup(table, "a", "r")
    assert found is not None
    assert (found.mean, found.low, found.high, found.count) == pytest.approx((2.0, 2.0, 2.0, 1))
    assert speedup(table, "a", "nobody") is None


def test_the_interval_is_a_bootstrap_over_instances() -> None:
    ratios = np.exp(np.random.default_rng(5).normal(0.3, 0.2, size=200))
    found = geometric_mean(ratios)
    assert found is not None
    assert found.mean == pytest.approx(math.exp(np.log(ratios).mean()))
    spread = 1.96 * np.log(ratios).std() / math.sqrt(200)
    assert math.log(found.high) - math.log(found.low) == pytest.approx(2 * spread, rel=0.1)
    assert geometric_mean(ratios) == found
    assert geometric_mean([]) is None


def test_a_performance_profile_is_that_of_dolan_and_more() -> None:
    table = pd.DataFrame({"a": [1.0, 3.0, np.nan], "b": [2.0, 1.0, np.nan]}, index=list("xyz"))
    profiles = performance_profile(table)
    for label, ratios in (("a", [1.0, 3.0]), ("b", [1.0, 2.0])):
        assert profiles[label][0].tolist() == pytest.approx(ratios)
        assert profiles[label][1].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_gaps_over_time_are_quartiles_of_steps() -> None:
    rows = [
        {"instance": name, "cell": name, "method": "a", "makespan_s": 1.2, "seconds": 8.0} for name in "xyz"
    ]
    trace = pd.DataFrame(
        [("x", 0.1, 1.5), ("x", 4.0, 1.1), ("y", 0.5, 1.4), ("z", 2.0, 1.3)],
        columns=["cell", "seconds", "makespan_s"],
    )
    seconds, _, median, high = gaps_over_time(frame_of(rows), trace)["a"]
    at = dict(zip(np.round(seconds, 6), median, strict=True))
    assert at[seconds[0].round(6)] == math.inf
    assert median[(seconds >= 0.5) & (seconds < 2)] == pytest.approx(0.5)
    assert median[(seconds >= 2) & (seconds < 4)] == pytest.approx(0.4)
    # At 4 s x prices itself at 1.1, but its checked plan has 1.2.
    assert median[(seconds >= 4) & (seconds < 8)] == pytest.approx(0.3)
    assert median[-1] == high[-1] == pytest.approx(0.2)


def test_a_limit_is_part_of_the_label_where_there_are_several() -> None:
    frame = frame_of(
        [
            {"instance": "x", "method": "a", "makespan_s": 1.0, "time_limit_s": 2.0},
            {"instance": "x", "method": "a", "makespan_s": 1.0, "time_limit_s": 10.0},
            {"instance": "x", "method": "b", "makespan_s": 1.0, "max_evaluations": 1000},
            {"instance": "x", "method": "c", "makespan_s": 1.0},
        ]
    )
    assert frame["label"].tolist() == ["a (2 s)", "a (10 s)", "b", "c"]


def test_scaling_axes_are_those_that_vary_on_their_own() -> None:
    def axes(rows: list[tuple[int, int, int]], **more: Any) -> list[str]:
        names = ("num_layers", "num_ranks", "microbatches")
        frame = frame_of(
            [
                {
                    "instance": str(row),
                    "method": "a",
                    "makespan_s": 1.0,
                    **dict(zip(names, row, strict=True)),
                    **more,
                }
                for row in rows
            ]
        )
        return [name for name, _ in scaling_axes(frame)]

    assert axes([(5, 2, 4), (5, 4, 8)]) == ["num_ranks"]
    assert axes([(5, 2, 4), (5, 4, 8), (5, 2, 8)]) == ["num_ranks", "microbatches"]
    assert axes([(5, 2, 4), (9, 2, 4)]) == []
    assert axes([(5, 2, 4), (9, 2, 4)], body_layers=3) == ["num_layers"]


def test_worth_of_a_dimension_is_shapleys_by_all_six_orders() -> None:
    random = np.random.default_rng(2)
    subsets = [tuple(name for name in DIMENSIONS if bits >> DIMENSIONS.index(name) & 1) for bits in range(8)]
    rows = [
        {
            "instance": instance, "method": "+".join(subset) or "none", "kind": "search",
            "dimensions": "+".join(reversed(subset)), "makespan_s": float(random.uniform(1, 2)),
        }
        for instance in "xy"
        for subset in subsets
    ]  # fmt: skip
    table = dimension_values(frame_of(rows))
    product = np.ones(2)
    for dimension in DIMENSIONS:
        alone, last, average = dimension_worth(table, dimension)
        assert alone == pytest.approx((table["none"] / table[dimension]).to_numpy())
        logs = []
        for order in permutations(DIMENSIONS):
            before = order[: order.index(dimension)]
            names = [
                "+".join(name for name in DIMENSIONS if name in chosen) or "none"
                for chosen in (before, (*before, dimension))
            ]
            logs.append(np.log(table[names[0]] / table[names[1]]).to_numpy())
        assert np.log(average) == pytest.approx(np.mean(logs, axis=0))
        product *= average
        assert len(last) == 2
    assert product == pytest.approx((table["none"] / table["+".join(DIMENSIONS)]).to_numpy())
    assert dimension_values(frame_of(rows[:-1])).dropna().shape == (1, 8)
    assert dimension_values(frame_of(rows[:5])).empty
