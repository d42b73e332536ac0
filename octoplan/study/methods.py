"""Methods of a suite: from a line of the file to a plan.

A method is a strategy of ``octoplan compile``, a placement solver alone, annealing over some dimensions alone, or a
published tuning rule.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import ValidationError

from octoplan.baselines import parse_strategy
from octoplan.compile_options import CompileOptions, check_compile_options
from octoplan.compiler import compile_plan
from octoplan.memory_limit import MemoryLimit
from octoplan.study.restricted import dimension_plan, octopipe_plan
from octoplan.study.solver_method import solver_plan
from octoplan_schemas import Cluster, Constraint, InputError, Method, ModelGraph, Plan, Study
from octoplan_schemas.base import input_error
from octoplan_solvers.registry import get_solver

#: Fields of `CompileOptions` that the suite or the study sets itself.
_FIXED = {"microbatches", "strategy", "seed", "on_progress", "should_stop"}
#: What a method may change; a limit of its own takes the place of the suite's.
OPTIONS = tuple(field.name for field in fields(CompileOptions) if field.name not in _FIXED)
_LIMITS = ("time_limit_s", "max_evaluations")
_DEFAULT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """Seconds, or evaluations where they are given; neither for a method that does not search."""

    time_limit_s: float | None = None
    max_evaluations: int | None = None

    def __str__(self) -> str:
        """Write the limit as it stands in tables."""
        if self.max_evaluations is not None:
            return f"{self.max_evaluations:,} evaluations"
        return "" if self.time_limit_s is None else f"{self.time_limit_s:g} s"


def kind_of(method: Method) -> str:
    """Return ``baseline``, ``octoplan``, ``solver``, ``search`` or ``rule``."""
    if method.strategy is None:
        return "solver" if method.solver else "rule" if method.rule else "search"
    return "baseline" if parse_strategy(method.strategy).is_baseline else "octoplan"


def is_random(method: Method) -> bool:
    """True if seeds can make a difference; the others run once per instance and limit."""
    return kind_of(method) in ("octoplan", "solver", "rule") or bool(method.search)


def limits_of(method: Method, suite: Study) -> list[SearchLimit]:
    """Return the limits that a method runs under: its own, or else each of the suite's."""
    if kind_of(method) == "baseline" or method.search == ():
        return [SearchLimit()]
    own = {name: method.options[name] for name in _LIMITS if method.options.get(name) is not None}
    if own:
        return [SearchLimit(**own)]  # type: ignore[arg-type]
    if suite.max_evaluations:
        return [SearchLimit(max_evaluations=count) for count in dict.fromkeys(suite.max_evaluations)]
    return [
        SearchLimit(time_limit_s=float(s)) for s in dict.fromkeys(suite.time_limits_s or (_DEFAULT_SECONDS,))
    ]


def check_method(method: Method) -> None:
    """Refuse a method that cannot run anywhere.

    Raises
    ------
    InputError
        Names the method and its option.
    """
    try:
        options = compile_options_of(method, 1, "none", SearchLimit(), 0)
        check_compile_options(options)
        if method.solver is not None:
            get_solver(method.solver)
    except InputError as error:
        field = ".".join(part for part in (f"methods.{method.name}", error.field) if part)
        raise InputError(error.message, field=field) from None
    except ValueError as error:
        raise InputError(
            f"{error}; a solver of your own needs --plugin FILE", field=f"methods.{method.name}.solver"
        ) from None


def compile_options_of(
    method: Method, microbatches: int, memory_limit: str | float, limit: SearchLimit, seed: int
) -> CompileOptions:
    """Return the options that a method compiles with.

    Raises
    ------
    InputError
        If an option is unknown or has a bad value.
    """
    given = dict(method.options)
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise InputError(f"unknown option; there are: {', '.join(OPTIONS)}", field=f"options.{unknown[0]}")
    strategy = method.strategy or "octoplan"
    parse_strategy(strategy)
    constraints = _constraints(given.pop("constraints", None))
    for name, value in given.items():
        if not _is_like(value, getattr(CompileOptions, name, None), name):
            raise InputError(f"{value!r} is of the wrong type", field=f"options.{name}")
    options = CompileOptions(
        microbatches, strategy, memory_limit=memory_limit, seed=seed, constraints=constraints
    )
    options = replace(options, **given)  # type: ignore[arg-type]
    MemoryLimit.parse(options.memory_limit)
    if limit.max_evaluations is not None:
        return replace(options, max_evaluations=limit.max_evaluations)
    return options if limit.time_limit_s is None else replace(options, time_limit_s=limit.time_limit_s)


def run_method(method: Method, model: ModelGraph, cluster: Cluster, options: CompileOptions) -> Plan:
    """Make a plan.

    Raises
    ------
    InputError
        If the method does not admit the instance.
    InfeasibleError
        If it finds no plan that fits.
    """
    if method.solver is not None:
        return solver_plan(method.solver, model, cluster, options)
    if method.search is not None:
        return dimension_plan(method.search, model, cluster, options)
    if method.rule is not None:
        return octopipe_plan(model, cluster, options)
    return compile_plan(model, cluster, options)


def _is_like(value: Any, default: Any, name: str) -> bool:
    """Decide whether a value of a file can stand where the option's default stands."""
    if name in ("max_evaluations", "max_stages_per_device"):
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "memory_limit":
        return isinstance(value, str | int | float) and not isinstance(value, bool)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    return isinstance(value, type(default))


def _constraints(value: Any) -> tuple[Constraint, ...]:
    """Read declarative constraints as a job file has them."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError("must be a list, as in a job file", field="options.constraints")
    try:
        return tuple(Constraint.model_validate(entry, by_alias=True, by_name=False) for entry in value)
    except ValidationError as error:
        found = input_error(error, None)
        raise InputError(found.message, field=f"options.constraints.{found.field}") from None
