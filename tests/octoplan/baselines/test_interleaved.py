"""Megatron's groups of microbatches, and its order written out."""

from __future__ import annotations

import pytest

from octoplan.baselines import build_schedule
from octoplan.baselines.interleaved import microbatch_group_size


@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_group_size_is_the_smallest_that_megatron_admits(num_ranks: int) -> None:
    for num_microbatches in range(num_ranks, 40):

        def admits(size: int, total: int = num_microbatches) -> bool:
            last = total % size
            return num_ranks <= size <= total and not 0 < last < num_ranks

        expected = min(size for size in range(1, num_microbatches + 1) if admits(size))
        assert microbatch_group_size(num_ranks, num_microbatches) == expected


def test_fewer_microbatches_than_ranks_form_one_group() -> None:
    assert microbatch_group_size(8, 3) == 3


def test_order_written_out() -> None:
    """Two ranks, two stages each, five microbatches: groups of three and two."""
    orders = build_schedule("interleaved-1f1b", 2, 5).orders
    words = [" ".join(f"{stage}{kind}{m}" for stage, kind, m in order) for order in orders]
    assert words[0] == ("0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4")
    assert words[1] == ("1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4")
