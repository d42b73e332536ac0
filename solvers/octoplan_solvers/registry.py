"""Solvers for partition and placement by name (contract, section 8): what there is, and one way to call each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Protocol

from octoplan_solvers import brute_force, chain_dp, cp_sat, milp
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult

DEFAULT_SOLVER = "cp-sat"
#: Endings of the files that `emit_model` writes.
MODEL_SUFFIXES = (".mps", ".lp", ".pb.txt")

#: Entry points of this group in installed packages name `Solver` objects.
ENTRY_POINTS = "octoplan.solvers"

_MILP = "milp:"
_BUILT_IN: dict[str, Callable[..., SolverResult]] = {
    "cp-sat": cp_sat.solve_placement,
    "dp": chain_dp.solve_placement,
    "brute-force": brute_force.solve_placement,
}


class SolveFunction(Protocol):
    """What every solver is called with; times are seconds."""

    def __call__(
        self,
        problem: PipelineProblem,
        *,
        time_limit_s: float,
        seed: int = 0,
        num_workers: int = 2,
        hint: Assignment | None = None,
    ) -> SolverResult:
        """Solve a problem."""


@dataclass(frozen=True, slots=True)
class SolverInfo:
    """What a solver is and can do.

    Attributes
    ----------
    objective:
        What it minimises: ``makespan bound`` (`placement_check.assignment_bound`) or ``heaviest stage``.
    chooses_placement:
        False: ranks come in a fixed order.
    bounds:
        Whether a run that is stopped early still gives a bound.
    constraints:
        Which declarative constraints it respects by itself: ``all`` or ``within a stage``.
    explains:
        Whether it says itself which constraints cannot hold together; for all others `solve_assignment` asks CP-SAT.
    note:
        Anything else that a user should know.
    """

    name: str
    available: bool
    version: str
    objective: str = "makespan bound"
    chooses_placement: bool = True
    bounds: bool = True
    constraints: str = "all"
    explains: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Solver:
    """A solver that is added from outside: what it is, and the function that `solve_assignment` calls."""

    info: SolverInfo
    solve: SolveFunction


def register_solver(solver: Solver) -> None:
    """Add a solver under its name, for as long as this process runs; the same name again replaces it.

    Raises
    ------
    ValueError
        If the name is one of the solvers that come with the package.
    """
    name = solver.info.name
    if name in _BUILT_IN or name.startswith(_MILP):
        raise ValueError(f"{name!r} is the name of a solver that comes with octoplan; choose another")
    _ADDED[name] = solver


def list_solvers() -> list[SolverInfo]:
    """Return every solver that has a name of its own, installed or not, what else PuLP finds, and what was added."""
    return [*_list_built_in(), *(solver.info for solver in _added().values())]


def _list_built_in() -> list[SolverInfo]:
    found = milp.available_backends()
    pulp = _version("pulp")
    others = [
        SolverInfo(f"{_MILP}{name}", True, f"through PuLP {pulp}", bounds=False)
        for name in found
        if name not in ("highs", "cbc")
    ]
    return [
        SolverInfo("cp-sat", True, f"OR-Tools {_version('ortools')}", explains=True),
        SolverInfo("milp:highs", "highs" in found, f"highspy {_version('highspy')}, PuLP {pulp}"),
        SolverInfo("milp:cbc", "cbc" in found, f"PuLP {pulp}"),
        *others,
        SolverInfo(
            "dp",
            True,
            _version("octoplan"),
            objective="heaviest stage",
            chooses_placement=False,
            bounds=False,
            constraints="within a stage",
            note="exact on a chain, also with unequal devices in a fixed order",
        ),
        SolverInfo(
            "brute-force",
            True,
            _version("octoplan"),
            bounds=False,
            note="tiny instances: about (R + 1)^L steps",
        ),
    ]


def get_solver(name: str) -> SolveFunction:
    """Return the function of a solver.

    Raises
    ------
    ValueError
        If there is no solver of this name, or it is not installed; the message lists what is.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    added = _added()
    if name in added:
        return added[name].solve
    backend = name.removeprefix(_MILP)
    if name.startswith(_MILP) and backend in milp.available_backends():
        return partial(milp.solve_placement, backend=backend)
    installed = ", ".join(info.name for info in list_solvers() if info.available)
    raise ValueError(f"no solver {name!r}; installed are {installed}")


def solve_assignment(
    problem: PipelineProblem,
    *,
    solver: str = DEFAULT_SOLVER,
    time_limit_s: float,
    seed: int = 0,
    num_workers: int = 2,
    hint: Assignment | None = None,
) -> SolverResult:
    """Solve by the solver of a name; if infeasible, the result says which constraints cannot hold together.

    Raises
    ------
    ValueError
        If there is no solver of this name.
    """
    result = get_solver(solver)(
        problem, time_limit_s=time_limit_s, seed=seed, num_workers=num_workers, hint=hint
    )
    if result.status == "infeasible" and not result.conflict:
        return cp_sat.explain_infeasible(problem, result)
    return result


def emit_model(problem: PipelineProblem, path: Path | str) -> None:
    """Write the constraint model: ``.mps`` or ``.lp`` (MILP, objective in seconds), or ``.pb.txt`` (CP-SAT).

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file cannot be written.
    """
    name = Path(path).name
    if not name.endswith(MODEL_SUFFIXES):
        raise ValueError(f"a model is written as {', '.join(MODEL_SUFFIXES)}, not {name!r}")
    (cp_sat if name.endswith(".pb.txt") else milp).emit_model(problem, path)


#: Solvers of `register_solver`: a name must mean the same wherever a process looks it up.
_ADDED: dict[str, Solver] = {}


def _added() -> dict[str, Solver]:
    """Return the solvers of installed packages, and those that were registered."""
    return {**_installed(), **_ADDED}


@cache
def _installed() -> dict[str, Solver]:
    """Load the entry points; one that cannot be loaded is listed as not available, and says why."""
    solvers: dict[str, Solver] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            solver = point.load()
            if not isinstance(solver, Solver):
                raise TypeError(f"{point.value} is no octoplan_solvers.registry.Solver")
        except Exception as error:  # whatever another package's import may raise
            solver = _broken(point.name, f"{type(error).__name__}: {error}")
        if solver.info.name not in _BUILT_IN and not solver.info.name.startswith(_MILP):
            solvers[solver.info.name] = solver
    return solvers


def _broken(name: str, reason: str) -> Solver:
    def solve(*arguments: object, **options: object) -> SolverResult:
        raise ValueError(f"solver {name!r} cannot be loaded: {reason}")

    return Solver(SolverInfo(name, False, "cannot be loaded", note=reason), solve)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
