"""Options of a compilation: flags and job file in one place, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octoplan.memory_limit import DEFAULT_MEMORY_LIMIT
from octoplan.targets import Target, get_target
from octoplan_schemas import Constraint, InputError, Job
from octoplan_solvers.registry import DEFAULT_SOLVER, get_solver


@dataclass(frozen=True, slots=True)
class Progress:
    """What a long compilation is doing; what is not known yet is None.

    Attributes
    ----------
    phase:
        ``baselines``, ``bound``, ``search``, ``finish`` or ``proof``.
    spent:
        Share of the time limit, or of the evaluations, that is used up.
    dimension:
        That moved in the last improvement: ``order``, ``partition``, ``placement``, or ``start``.
    left_s:
        Seconds to the time limit, where it counts.
    """

    phase: str
    best_makespan_s: float | None = None
    lower_bound_s: float | None = None
    num_evaluations: int = 0
    spent: float = 0.0
    dimension: str | None = None
    evaluations_per_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True)
class CompileOptions:
    """What the command line's flags hold.

    Parameters
    ----------
    microbatches:
        Microbatches of one optimizer step.
    strategy:
        ``octoplan`` or a baseline such as ``1f1b:balanced`` or ``interleaved-1f1b:v=4``.
    backward:
        ``split`` or ``fused``; baselines have their own.
    max_stages_per_device:
        Stages that a rank may hold; baselines have their own.
    memory_limit:
        Bytes, ``"90%"``, ``"1f1b:1.5"``, ``"none"`` (contract, section 6).
    time_limit_s:
        Seconds in all, from when the kernels are loaded. Ignored where ``max_evaluations`` is given.
    gap:
        End as soon as the makespan exceeds the certified bound by no more than this share (0.01: one percent).
    solver:
        Partition and placement solver that gives bounds and starts (contract, section 8).
    target:
        ``octoplan``, or the engine that shall run the plan: ``torch``, ``torchtitan``, ``megatron``.
    constraints:
        Declarative constraints (contract, section 7).
    max_evaluations:
        End the search after so many candidates; with ``seed`` the plan is then reproducible byte for byte.
    on_progress, should_stop:
        Called during the search; ``should_stop`` ends it with the best plan so far.
    """

    microbatches: int
    strategy: str = "octoplan"
    backward: str = "split"
    max_stages_per_device: int = 4
    memory_limit: str | float | None = DEFAULT_MEMORY_LIMIT
    time_limit_s: float = 10.0
    gap: float = 0.0
    seed: int = 0
    solver: str = DEFAULT_SOLVER
    target: str = Target.name
    constraints: tuple[Constraint, ...] = ()
    max_evaluations: int | None = None
    on_progress: Callable[[Progress], None] = lambda progress: None
    should_stop: Callable[[], bool] = lambda: False


def compile_options(job: Job | None, **given: Any) -> CompileOptions:
    """Merge a job file and flags; a flag that is not None wins.

    Raises
    ------
    InputError
        If neither says how many microbatches there are.
    """
    fields = {} if job is None else job.model_dump(exclude_none=True, exclude={"format", "constraints"})
    if "time_limit" in fields:
        fields["time_limit_s"] = fields.pop("time_limit")
    fields.update({name: value for name, value in given.items() if value is not None})
    if "gap" in fields:
        fields["gap"] = parse_gap(fields["gap"])
    if "microbatches" not in fields:
        raise InputError(
            "missing; give --microbatches, or microbatches in the job file", field="microbatches"
        )
    return CompileOptions(**fields, constraints=() if job is None else job.constraints)


def parse_gap(gap: str | float) -> float:
    """Read ``0.01`` or ``"1%"``.

    Raises
    ------
    InputError
        If it is neither, or below zero.
    """
    text = str(gap).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise InputError(f"{text!r} is not a gap; write a share (0.01) or a percentage (1%)", field="gap")
    return value


def check_compile_options(options: CompileOptions) -> None:
    """Refuse values out of range, naming the field."""
    for field in ("microbatches", "max_stages_per_device", "max_evaluations"):
        value = getattr(options, field)
        if value is not None and value < 1:
            raise InputError(f"must be at least 1, not {value}", field=field)
    if options.backward not in ("split", "fused"):
        raise InputError(f"must be split or fused, not {options.backward!r}", field="backward")
    if not 0 <= options.time_limit_s < float("inf"):
        raise InputError(f"must be at least 0 seconds, not {options.time_limit_s}", field="time_limit")
    parse_gap(options.gap)
    try:
        get_solver(options.solver)
    except ValueError as error:
        raise InputError(str(error), field="solver") from None
    get_target(options.target)
    if options.seed < 0:
        raise InputError(f"must be at least 0, not {options.seed}", field="seed")
