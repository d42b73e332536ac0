"""Parameters that several layers share.

On one rank there is a single copy, and autograd adds up its uses. Copies on different ranks start equal, and after
every step their gradients are summed between exactly the ranks that hold one, so that equal optimizers keep them equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from octoplan_runtime.subgroups import Communicator, Subgroups
from octoplan_schemas import InputError

#: Global names, ``layers.INDEX.NAME``, of parameters that are one and the same.
TiedNames = Sequence[str]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A parameter with copies on other ranks, and the way to the ranks that hold one."""

    parameter: nn.Parameter
    communicator: Communicator
    num_copies: int


class TiedParameters:
    """This rank's part in all tied parameters of a model; every rank of the group makes one.

    Parameters
    ----------
    tied:
        Groups of names.
    modules:
        This rank's stages.
    rank_of_layer:
        The rank of every layer.
    rank:
        This rank.
    subgroups:
        Connects ranks that hold copies.
    """

    def __init__(
        self,
        tied: Iterable[TiedNames],
        modules: Iterable[nn.Module],
        rank_of_layer: Sequence[int],
        rank: int,
        subgroups: Subgroups,
    ) -> None:
        modules = list(modules)
        made: dict[tuple[int, ...], Communicator] = {}
        self._copies: list[_Copy] = []
        for names in tied:
            holders = sorted({rank_of_layer[layer_of(name, len(rank_of_layer))] for name in names})
            if rank not in holders:
                continue
            parameter = share(
                modules, [n for n in names if rank_of_layer[layer_of(n, len(rank_of_layer))] == rank]
            )
            if len(holders) > 1:
                key = tuple(holders)
                made[key] = made.get(key) or subgroups.make(holders, "tied")
                self._copies.append(_Copy(parameter, made[key], len(holders)))
                _start_equal(names, self._copies[-1])

    @contextmanager
    def summed(self) -> Iterator[None]:
        """Sum the gradients that arise meanwhile over the copies; what was in ``.grad`` before stays, once."""
        trained = [copy for copy in self._copies if copy.parameter.requires_grad]
        before = [copy.parameter.grad for copy in trained]
        for copy in trained:
            copy.parameter.grad = None
        try:
            yield
            for copy in trained:
                gradient = copy.parameter.grad
                copy.parameter.grad = torch.zeros_like(copy.parameter) if gradient is None else gradient
                copy.communicator.allreduce([copy.parameter.grad]).wait()
        finally:
            for copy, earlier in zip(trained, before, strict=True):
                if earlier is not None:
                    added = copy.parameter.grad
                    copy.parameter.grad = earlier if added is None else earlier + added


def layer_of(name: str, num_layers: int) -> int:
    """Return the layer in a global name.

    Raises
    ------
    InputError
        If there is none.
    """
    parts = name.split(".")
    if len(parts) < 3 or parts[0] != "layers" or not parts[1].isdigit() or int(parts[1]) >= num_layers:
        raise InputError(f"tied: {name!r} must be written layers.INDEX.NAME, INDEX below {num_layers}")
    return int(parts[1])


def share(modules: Sequence[nn.Module], names: Sequence[str]) -> nn.Parameter:
    """Put the first name's parameter in the place of all others, and return it."""
    first = _find(modules, names[0])
    for name in names[1:]:
        other = _find(modules, name)
        if other.shape != first.shape or other.dtype != first.dtype:
            raise InputError(
                f"tied: {names[0]} is {tuple(first.shape)} of {first.dtype}, but {name} is "
                f"{tuple(other.shape)} of {other.dtype}; tie parameters of one shape"
            )
        _replace(modules, name, first)
    return first


def unique_parameters(modules: Mapping[int, nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every parameter once, under its first name."""
    seen: set[int] = set()
    for module in modules.values():
        for name, parameter in module.named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter


def _holder(modules: Sequence[nn.Module], name: str) -> tuple[nn.Module, str] | None:
    path, _, leaf = name.rpartition(".")
    for module in modules:
        try:
            parent = module.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(getattr(parent, leaf, None), nn.Parameter):
            return parent, leaf
    return None


def _find(modules: Sequence[nn.Module], name: str) -> nn.Parameter:
    found = _holder(modules, name)
    if found is None:
        raise InputError(f"tied: no layer of this rank has a parameter {name!r}")
    parameter: nn.Parameter = getattr(*found)
    return parameter


def _replace(modules: Sequence[nn.Module], name: str, parameter: nn.Parameter) -> None:
    found = _holder(modules, name)
    assert found is not None, "found before"
    setattr(*found, parameter)


def _start_equal(names: TiedNames, copy: _Copy) -> None:
    """Take the values of the lowest rank's copy."""
    own = torch.tensor([copy.parameter.numel()], device=copy.parameter.device)
    sizes = [torch.empty_like(own) for _ in range(copy.num_copies)]
    copy.communicator.allgather([sizes], [own]).wait()
    if len({int(size) for size in sizes}) > 1:
        raise InputError(f"tied: {', '.join(names)} must have one shape on every rank")
    with torch.no_grad():
        copy.communicator.broadcast(copy.parameter, 0).wait()
