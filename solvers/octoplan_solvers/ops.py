"""Compute ops as integers: how every kernel of the project names an op.

``code = (stage * num_microbatches + microbatch) * 4 + kind``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FORWARD = 0
BACKWARD_INPUT = 1
BACKWARD_WEIGHT = 2
BACKWARD = 3
NUM_KINDS = 4
KIND_LETTERS = "FIWB"

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def encode(stage: int, kind: int, microbatch: int, num_microbatches: int) -> int:
    """Return the code of one op."""
    return (stage * num_microbatches + microbatch) * NUM_KINDS + kind


def decode(code: int, num_microbatches: int) -> tuple[int, int, int]:
    """Return ``(stage, kind, microbatch)`` of a code."""
    slot, kind = divmod(code, NUM_KINDS)
    stage, microbatch = divmod(slot, num_microbatches)
    return stage, kind, microbatch
