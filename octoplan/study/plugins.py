"""Solvers of the user's own, from ``--plugin FILE``: the user's code, named by the user and never by a suite.

A plugin is one Python file that defines ``SOLVER``, or a list ``SOLVERS``, of `octoplan_solvers.registry.Solver`. Its
text travels to every worker process, so that a cluster's other machines need not have the file.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from octoplan_schemas import InputError
from octoplan_schemas.files import read_text
from octoplan_solvers.registry import Solver, register_solver


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin's file name and text."""

    path: str
    text: str

    @property
    def module_name(self) -> str:
        """A name for the module that no other has."""
        return f"octoplan_plugin_{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


def read_plugins(paths: Iterable[str | Path]) -> tuple[Plugin, ...]:
    """Read plugin files, and register their solvers in this process.

    Raises
    ------
    InputError
        If a file cannot be read or run, or defines no solver.
    """
    plugins = tuple(Plugin(str(path), read_text(path)) for path in paths)
    for plugin in plugins:
        register_plugin(plugin)
    return plugins


def register_plugin(plugin: Plugin) -> None:
    """Run a plugin's text as a module and register what it defines; a second time does nothing."""
    if plugin.module_name in sys.modules:
        return
    module = ModuleType(plugin.module_name)
    module.__file__ = plugin.path
    # Data classes and pickling look their module up by name while its text still runs.
    sys.modules[plugin.module_name] = module
    try:
        exec(compile(plugin.text, plugin.path, "exec"), module.__dict__)
        solvers = _solvers_of(module)
        for solver in solvers:
            register_solver(solver)
    except Exception as error:
        del sys.modules[plugin.module_name]
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the plugin cannot be loaded: {type(error).__name__}: {error}", source=plugin.path
        ) from error


def _solvers_of(module: ModuleType) -> list[Solver]:
    found = getattr(module, "SOLVERS", None)
    given = [getattr(module, "SOLVER", None)] if found is None else list(found)
    solvers = [solver for solver in given if isinstance(solver, Solver)]
    if not solvers or len(solvers) < len(given):
        raise InputError(
            "defines no solver; write SOLVER = octoplan_solvers.registry.Solver(info, solve)",
            source=module.__file__,
        )
    return solvers
