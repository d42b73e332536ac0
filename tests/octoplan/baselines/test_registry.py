"""Sizes that a method does not admit are refused in one line that says what is."""

from __future__ import annotations

import pytest

from octoplan.baselines import BASELINES, baseline, build_schedule
from octoplan_schemas import InputError


@pytest.mark.parametrize(
    ("arguments", "field", "part"),
    [
        (("nope", 2, 2), "strategy", "'nope' is not a baseline; there are: gpipe, 1f1b"),
        (("1f1b", 0, 2), "devices", "0 ranks"),
        (("1f1b", 2, 0), "microbatches", "at least 1, not 0"),
        (("1f1b", 2, 2, 2), "strategy", "exactly 1 stage per rank, not 2"),
        (("interleaved-1f1b", 2, 2, 1), "strategy", "at least 2 stages per rank, not 1"),
        (("zb-v", 2, 2, 4), "strategy", "exactly 2 stages per rank, not 4"),
        (
            ("dualpipe-v", 8, 12),
            "microbatches",
            "dualpipe-v on 8 ranks admits 16 microbatches or more, not 12",
        ),
    ],
)
def test_refusals(arguments: tuple[str, int, int], field: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        build_schedule(*arguments)
    assert part in str(caught.value)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BASELINES)
def test_default_stages_per_rank(name: str) -> None:
    spec = baseline(name)
    least = max(1, spec.microbatches_per_rank * 2)
    assert build_schedule(name, 2, least) == build_schedule(name, 2, least, spec.stages_per_rank)
    assert len(build_schedule(name, 2, least).placement) == 2 * spec.stages_per_rank
