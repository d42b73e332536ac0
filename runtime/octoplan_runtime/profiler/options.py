"""Options of a profile. Nothing here needs torch, so that bad usage is told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from octoplan_runtime.options import AutocastName, DtypeName
from octoplan_schemas import InputError

Backward = Literal["split", "fused"]
BACKWARDS: tuple[str, ...] = get_args(Backward)


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to measure.

    Attributes
    ----------
    microbatches:
        Into how many a batch of the workload is cut; costs are those of one.
    device_type:
        Name of the device type that the costs are for; ``"*"`` for any.
    device:
        Torch device to measure on.
    dtype, autocast:
        Of parameters and activations, and what is computed in under autocast, as of `RunOptions`.
    backward:
        What is timed: ``"split"`` runs I and W one after the other; ``"fused"`` runs B, of which I is the part that a
        backward for the input alone takes.
    repetitions:
        Number of timed runs, after `warm_up` runs; the median counts.
    warm_up:
        Number of runs before.
    optimizer_tensors:
        How many tensors of a parameter's size the optimizer keeps for it: 2 for Adam, 1 for momentum.
    """

    microbatches: int
    device_type: str = "*"
    device: str = "cpu"
    dtype: DtypeName = "float32"
    autocast: AutocastName | None = None
    backward: Backward = "split"
    repetitions: int = 15
    warm_up: int = 3
    optimizer_tensors: int = 2

    def __post_init__(self) -> None:
        least = (("microbatches", 1), ("repetitions", 1), ("warm_up", 0), ("optimizer_tensors", 0))
        for name, limit in least:
            if getattr(self, name) < limit:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag}: {getattr(self, name)} must be at least {limit}")
        if not self.device_type:
            raise InputError("--device-type: must not be empty; '*' stands for any type")
        if self.autocast is not None and self.dtype != "float32":
            raise InputError(f"--autocast: needs --dtype float32, not {self.dtype}; leave one of them out")
