"""The uniform partition: body layers spread evenly in order, the embedding first, the head last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from octoplan_schemas import InputError

#: Layers that go with the first stage, and with the last, when they open or close the model.
FIRST_STAGE_KINDS = frozenset({"embedding"})
LAST_STAGE_KINDS = frozenset({"lm_head", "head", "final_norm", "norm", "loss"})


def uniform_boundaries(kinds: Sequence[str], num_stages: int) -> list[tuple[int, int]]:
    """Return ``[first, end)`` layer indices of every stage.

    The layers between the leading `FIRST_STAGE_KINDS` and the trailing `LAST_STAGE_KINDS` are the body. With
    ``n`` body layers every stage gets ``n // num_stages`` of them, and each of the first ``n % num_stages``
    stages one more: the last stage carries the head already.

    Parameters
    ----------
    kinds:
        Kind of every layer, in order.
    num_stages:
        At least 1.

    Raises
    ------
    InputError
        If there are more stages than body layers.
    """
    first, end = _body(kinds)
    if num_stages < 1 or num_stages > max(end - first, min(len(kinds), 1)):
        raise InputError(
            f"a uniform partition into {num_stages} stages needs as many body layers, and at least one; "
            f"there are {end - first} of {len(kinds)} layers; take fewer stages per rank, fewer ranks, or "
            "finer layers",
            field="layers",
        )
    size, remainder = divmod(end - first, num_stages)
    cuts = [first + stage * size + min(stage, remainder) for stage in range(num_stages + 1)]
    cuts[0], cuts[-1] = 0, len(kinds)
    return list(pairwise(cuts))


def _body(kinds: Sequence[str]) -> tuple[int, int]:
    first, end = 0, len(kinds)
    while first < end and kinds[first] in FIRST_STAGE_KINDS:
        first += 1
    while end > first and kinds[end - 1] in LAST_STAGE_KINDS:
        end -= 1
    return first, end
