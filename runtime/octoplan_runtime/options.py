"""Options of a run. Nothing here needs torch, so that bad usage is told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

DtypeName = Literal["float32", "float64", "bfloat16"]
DTYPE_NAMES: tuple[str, ...] = get_args(DtypeName)
AutocastName = Literal["bfloat16", "float16"]
AUTOCAST_NAMES: tuple[str, ...] = get_args(AutocastName)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a plan.

    Attributes
    ----------
    plan:
        Path of the plan file.
    model:
        Path of a model graph, or None.
    layers:
        ``MODULE:FUNCTION`` that returns a `Workload`, or None for a miniature of the model.
    steps:
        Number of optimizer steps.
    dtype:
        Of parameters and activations.
    autocast:
        Type that layers and loss compute in under autocast, or None; the parameters stay float32.
    verify:
        Whether to compare losses and gradients with a single process.
    timeout_s:
        The longest that a rank may stay in one op, in seconds.
    seed:
        Of the miniature's parameters and data.
    debug:
        Whether every message is preceded by what it is, and checked.
    emulate:
        Whether ops sleep for the plan's times instead of computing.
    scale:
        With ``emulate``: factor on the plan's times; None makes the mean op 50 ms long.
    cluster:
        With ``emulate``: path of a cluster file that ``calibrate`` wrote on this machine, or None.
    calibrate:
        Path to write this machine's own costs to, instead of running the plan; or None.
    trace:
        Path to write the measured times of the last step to, or None.
    """

    plan: str
    model: str | None = None
    layers: str | None = None
    steps: int = 1
    dtype: DtypeName = "float32"
    autocast: AutocastName | None = None
    verify: bool = False
    timeout_s: float = 60.0
    seed: int = 0
    debug: bool = False
    emulate: bool = False
    scale: float | None = 1.0
    cluster: str | None = None
    calibrate: str | None = None
    trace: str | None = None
