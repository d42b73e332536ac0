"""The work of one microbatch on one device: sizes, sharding and how attention is counted.

Known limits: tensor parallelism is Megatron's (column, then row) without sequence parallelism, so what
lies between the sharded products is whole on every rank; there is no expert or context parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octoplan_schemas import InputError

#: ``causal``: only the (query, key) pairs that the mask and the window leave, as flash attention does;
#: ``full``: all s x s pairs whatever the mask, as an eager implementation (and torch's counter) does.
AttentionConvention = Literal["causal", "full"]

#: Bytes of one bfloat16 value: weights, activations and their gradients.
BF16_BYTES = 2
#: Bytes of one float32 value: accumulated weight gradients, master weights, moments, log-probabilities.
FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """What one device computes for one microbatch.

    Parameters
    ----------
    sequence_length, micro_batch_size:
        Tokens per sequence and sequences per microbatch.
    tensor_parallel:
        Number of devices that share every layer.
    attention:
        Which (query, key) pairs count.
    """

    sequence_length: int
    micro_batch_size: int = 1
    tensor_parallel: int = 1
    attention: AttentionConvention = "causal"

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.sequence_length * self.micro_batch_size

    def share(self, size: int, name: str) -> int:
        """Return one rank's part of a sharded dimension.

        Raises
        ------
        InputError
            If the dimension does not divide evenly.
        """
        if size % self.tensor_parallel:
            raise InputError(
                f"{self.tensor_parallel} does not divide {name} {size}; choose a divisor",
                field="tensor_parallel",
            )
        return size // self.tensor_parallel

    def share_or_copy(self, size: int, name: str) -> int:
        """Return one rank's part of what is copied once there are more ranks than parts (key-value heads)."""
        if self.tensor_parallel > size and self.tensor_parallel % size == 0:
            return 1
        return self.share(size, name)

    def share_padded(self, size: int) -> int:
        """Return one rank's part of a dimension that is padded where it does not divide (the vocabulary)."""
        return -(-size // self.tensor_parallel)

    def score_pairs(self, window: int | None) -> int:
        """Return the (query, key) pairs of one sequence that one head scores.

        Parameters
        ----------
        window:
            A query sees itself and the ``window - 1`` tokens before it; None: all before it.
        """
        length = self.sequence_length
        if self.attention == "full":
            return length * length
        width = length if window is None else min(window, length)
        return length * width - width * (width - 1) // 2
