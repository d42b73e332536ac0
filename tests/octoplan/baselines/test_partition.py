"""The uniform partition: embedding first, head last, body layers evenly between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan.baselines import uniform_boundaries
from octoplan_schemas import InputError


def test_embedding_and_head_ride_along() -> None:
    kinds = ["embedding", *["transformer"] * 8, "lm_head"]
    assert uniform_boundaries(kinds, 4) == [(0, 3), (3, 5), (5, 7), (7, 10)]


def test_first_stages_take_the_remainder() -> None:
    assert uniform_boundaries(["mlp"] * 7, 3) == [(0, 3), (3, 5), (5, 7)]
    assert uniform_boundaries(["embedding", *["mlp"] * 5, "final_norm", "lm_head"], 2) == [(0, 4), (4, 8)]


def test_one_stage_takes_everything() -> None:
    assert uniform_boundaries(["embedding", "lm_head"], 1) == [(0, 2)]


@given(
    st.integers(0, 2),
    st.integers(1, 40),
    st.integers(0, 2),
    st.integers(1, 40).filter(lambda number: number > 0),
)
def test_covers_evenly(num_before: int, num_body: int, num_after: int, num_stages: int) -> None:
    kinds = ["embedding"] * num_before + ["attention"] * num_body + ["lm_head"] * num_after
    if num_stages > num_body:
        with pytest.raises(
            InputError, match=f"into {num_stages} stages .* there are {num_body} of {len(kinds)}"
        ):
            uniform_boundaries(kinds, num_stages)
        return
    bounds = uniform_boundaries(kinds, num_stages)
    assert [layer for first, end in bounds for layer in range(first, end)] == list(range(len(kinds)))
    body = [kinds[first:end].count("attention") for first, end in bounds]
    assert max(body) - min(body) <= 1
    assert body == sorted(body, reverse=True)


@pytest.mark.parametrize(("kinds", "num_stages"), [([], 1), (["mlp"], 0), (["embedding", "lm_head"], 2)])
def test_refusals(kinds: list[str], num_stages: int) -> None:
    with pytest.raises(InputError, match="take fewer stages per rank, fewer ranks, or finer layers"):
        uniform_boundaries(kinds, num_stages)
