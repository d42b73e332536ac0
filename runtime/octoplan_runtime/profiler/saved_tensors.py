"""What autograd saves in a forward, and what of it is still there later."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch


class _Saved:
    """Stands in the graph for a tensor."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class SavedTensors:
    """Notes every tensor that is saved within `noted`.

    Parameters
    ----------
    excluded:
        Parameters and buffers: they are there anyhow.
    """

    def __init__(self, excluded: Iterable[torch.Tensor]) -> None:
        self._excluded = storages(excluded).keys()
        self._saved: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def noted(self) -> AbstractContextManager[None]:
        """Return the context in which the forward runs."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.tensor)

    def storages(self) -> dict[int, int]:
        """Return address and bytes of every storage that is still saved."""
        found = storages(saved.tensor for saved in self._saved)
        return {place: size for place, size in found.items() if place not in self._excluded}

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        # Detached, or an output that is saved would keep its own graph alive through this object.
        saved = _Saved(tensor.detach())
        self._saved.add(saved)
        return saved


def storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Return address and bytes of every storage behind some tensors."""
    return {s.data_ptr(): s.nbytes() for s in (tensor.untyped_storage() for tensor in tensors) if s.nbytes()}
