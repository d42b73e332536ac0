"""Score pairs against a mask that is written out; sharing of dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octoplan.cost_model import Workload
from octoplan_schemas import InputError


@given(st.integers(1, 60), st.none() | st.integers(1, 80))
def test_causal_pairs_are_the_ones_of_the_mask(length: int, window: int | None) -> None:
    query, key = np.indices((length, length))
    mask = key <= query
    if window is not None:
        mask &= key > query - window
    assert Workload(length).score_pairs(window) == mask.sum()


@given(st.integers(1, 60), st.none() | st.integers(1, 80))
def test_full_convention_ignores_mask_and_window(length: int, window: int | None) -> None:
    assert Workload(length, attention="full").score_pairs(window) == length * length


def test_what_does_not_divide_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="tensor_parallel: 3 does not divide num_attention_heads 32"):
        Workload(8, tensor_parallel=3).share(32, "num_attention_heads")


def test_few_key_value_heads_are_copied_and_a_vocabulary_is_padded() -> None:
    assert Workload(8, tensor_parallel=8).share_or_copy(2, "heads") == 1
    assert Workload(8, tensor_parallel=2).share_or_copy(8, "heads") == 4
    assert Workload(8, tensor_parallel=4).share_padded(10) == 3
    with pytest.raises(InputError):
        Workload(8, tensor_parallel=3).share_or_copy(2, "heads")
