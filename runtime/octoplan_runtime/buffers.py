"""Memory for received tensors: a block is lent again once nothing refers to it any more.

What a consumer does with a received tensor decides how long it is needed: autograd saves an activation until B or W, a
layer may hand it on as its output, the gradient of a bias may be the received gradient itself. So a block comes back
not at an op but when its last tensor is gone, and a step needs as many blocks as its plan has messages in use at once.
"""

from __future__ import annotations

import weakref
from collections import defaultdict

import torch
from torch.utils.dlpack import from_dlpack

from octoplan_runtime.tensor_specs import TensorSpec


class BufferPool:
    """Blocks of one device.

    Parameters
    ----------
    device:
        Where the blocks are.

    Attributes
    ----------
    num_bytes:
        Of all blocks, lent or not: the most that was in use at once since the pool was made.
    """

    def __init__(self, device: torch.device) -> None:
        self.num_bytes = 0
        self._device = device
        self._free: dict[int, list[torch.Tensor]] = defaultdict(list)

    def lend(self, spec: TensorSpec) -> torch.Tensor:
        """Return a tensor with arbitrary values; its memory comes back when it and all views of it are gone."""
        num_bytes = spec.num_bytes
        if num_bytes == 0:
            return spec.empty(self._device)
        free = self._free[num_bytes]
        block = free.pop() if free else self._new_block(num_bytes)
        # A storage of its own over the same memory: it dies with the last tensor that uses it.
        lent = from_dlpack(block)
        weakref.finalize(lent.untyped_storage(), free.append, block).atexit = False
        return lent.view(spec.dtype).view(spec.shape)

    def _new_block(self, num_bytes: int) -> torch.Tensor:
        self.num_bytes += num_bytes
        return torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
