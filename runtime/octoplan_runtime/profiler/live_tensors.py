"""Bytes of the tensors that ops make while they are watched."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages of tensors that ops have made in this thread and that are still alive.

    Attributes
    ----------
    live:
        Their bytes now.
    peak:
        The most that they have been since `restart`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def restart(self) -> None:
        """Forget the peak."""
        self.peak = self.live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op and count what it returns."""
        result = func(*args, **(kwargs or {}))
        given = {key for value in args if isinstance(value, torch.Tensor) for key in [_key(value)]}
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor) and _key(value) not in given:
                self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, num_bytes = storage.data_ptr(), storage.nbytes()
        if num_bytes == 0 or key in self._known:
            return
        self._known.add(key)
        self.live += num_bytes
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, num_bytes).atexit = False

    def _forget(self, key: int, num_bytes: int) -> None:
        self._known.discard(key)
        self.live -= num_bytes


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
