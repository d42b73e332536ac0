"""Strategy names are read and written, and refused in one line that says what exists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.baselines import BASELINES, BaselineSpec, PartitionKind, Strategy, parse_strategy
from octoplan_schemas import InputError

PARTITIONS: tuple[PartitionKind, ...] = ("uniform", "balanced")


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("octoplan", Strategy("octoplan")),
        ("1f1b", Strategy("1f1b")),
        ("1f1b:uniform", Strategy("1f1b")),
        ("1f1b:balanced", Strategy("1f1b", "balanced")),
        ("interleaved-1f1b:v=3", Strategy("interleaved-1f1b", "uniform", 3)),
        ("interleaved-1f1b:balanced:v=2", Strategy("interleaved-1f1b", "balanced", 2)),
        ("interleaved-1f1b:v=2:balanced", Strategy("interleaved-1f1b", "balanced", 2)),
        ("looped-bfs:v=1", Strategy("looped-bfs", "uniform", 1)),
        ("v-half:v=2", Strategy("v-half", "uniform", 2)),
    ],
)
def test_read(text: str, strategy: Strategy) -> None:
    assert parse_strategy(text) == strategy
    assert strategy.is_baseline == (text != "octoplan")


@settings(deadline=None)
@given(st.sampled_from(list(BASELINES.values())), st.sampled_from(PARTITIONS), st.none() | st.integers(0, 9))
def test_writing_is_the_inverse(spec: BaselineSpec, partition: PartitionKind, extra: int | None) -> None:
    stages_per_rank = None
    if extra is not None:
        fixed = spec.max_stages_per_rank is not None
        stages_per_rank = spec.min_stages_per_rank + (0 if fixed else extra)
    strategy = Strategy(spec.name, partition, stages_per_rank)
    assert parse_strategy(str(strategy)) == strategy


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2f2b", "unknown name '2f2b'; there are: octoplan, gpipe, 1f1b,"),
        ("", "unknown name ''"),
        ("octoplan:balanced", "write 'octoplan' alone"),
        ("1f1b:even", "'even': after the name come 'balanced' or 'uniform' and 'v=NUMBER', each once"),
        ("1f1b:balanced:uniform", "'uniform': after the name"),
        ("interleaved-1f1b:v=2:v=2", "'v=2': after the name"),
        ("interleaved-1f1b:v=two", "whole number"),
        ("interleaved-1f1b:v=-1", "whole number"),
        (
            "interleaved-1f1b:v=1",
            "interleaved-1f1b admits at least 2 stages per rank, not 1; write v=2 or more",
        ),
        ("1f1b:v=2", "1f1b admits exactly 1 stage per rank, not 2; leave v out or write v=1"),
        ("v-min:v=3", "v-min admits exactly 2 stages per rank, not 3"),
    ],
)
def test_refusals(text: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_strategy(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.field == "strategy"
