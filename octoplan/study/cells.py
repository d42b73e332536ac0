"""Cells of a study: one method on one instance with one limit, seed and repetition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from octoplan.compile_options import CompileOptions
from octoplan.study.instances import Instance
from octoplan.study.methods import SearchLimit, compile_options_of, is_random, kind_of, limits_of
from octoplan_schemas import InputError, Method, Study, canonical_json, canonical_sha256

#: More cells than this are a mistake of the suite.
MANY_CELLS = 200_000
#: Options of a method that make its job another one than the instance's, so that bounds cannot be shared.
_JOB_OPTIONS = ("constraints", "memory_limit", "target")


@dataclass(frozen=True)
class Cell:
    """One run of a method.

    Attributes
    ----------
    suite_version:
        Part of the identity, so that a suite can ask for everything anew.
    """

    instance: Instance
    method: Method
    limit: SearchLimit
    seed: int
    repetition: int
    suite_version: str

    @cached_property
    def id(self) -> str:
        """The identity: a hash of instance, method, limit, seed, repetition and the suite's version."""
        return canonical_sha256([*self.key, self.suite_version])[:24]

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two cells of different studies the same question; the method's name is part of it."""
        limit = self.limit.time_limit_s, self.limit.max_evaluations
        method = self.method.model_dump(mode="json", exclude_defaults=True)
        return self.instance.sha256, method, *limit, self.seed, self.repetition

    @property
    def options(self) -> CompileOptions:
        """The options that the method compiles with."""
        instance = self.instance
        return compile_options_of(
            self.method, instance.microbatches, instance.memory_limit, self.limit, self.seed
        )

    @property
    def expected_s(self) -> float:
        """Seconds that the cell takes as far as its limit tells; few where it does not."""
        return 0.3 if self.limit.time_limit_s is None else self.limit.time_limit_s

    def task(self) -> dict[str, Any]:
        """Return the cell as the JSON value that a worker gets."""
        return {
            "model": self.instance.model.to_document(),
            "cluster": self.instance.cluster.to_document(),
            "microbatches": self.instance.microbatches,
            "memory_limit": self.instance.memory_limit,
            "method": self.method.model_dump(mode="json", exclude_unset=True),
            "time_limit_s": self.limit.time_limit_s,
            "max_evaluations": self.limit.max_evaluations,
            "seed": self.seed,
        }

    def columns(self) -> dict[str, Any]:
        """Return what every row of the results says about the question."""
        instance, given = self.instance, self.method.options
        return {
            "cell": self.id,
            "instance": instance.name,
            "instance_sha256": instance.sha256,
            "model": instance.model_name,
            "cluster": instance.cluster_name,
            "num_layers": len(instance.model.layers),
            "num_ranks": instance.cluster.num_ranks,
            "microbatches": instance.microbatches,
            "memory_limit": instance.limit_text,
            "parameters": dict(instance.parameters),
            "method": self.method.name,
            "kind": kind_of(self.method),
            "dimensions": None if self.method.search is None else "+".join(self.method.search),
            "job_options": canonical_json({name: given[name] for name in _JOB_OPTIONS if name in given}),
            "time_limit_s": self.limit.time_limit_s,
            "max_evaluations": self.limit.max_evaluations,
            "seed": self.seed,
            "repetition": self.repetition,
        }


def expand_cells(suite: Study, instances: list[Instance]) -> list[Cell]:
    """Return every cell, instance by instance.

    A method that seeds cannot change runs once per instance and limit, whatever seeds and repetitions there are.

    Raises
    ------
    InputError
        If there are too many.
    """
    cells: list[Cell] = []
    for instance in instances:
        for method in suite.methods:
            cells += _cells_of(suite, instance, method)
        if len(cells) > MANY_CELLS:
            raise InputError(f"more than {MANY_CELLS} cells; shorten the lists", source=suite.name)
    return cells


def _cells_of(suite: Study, instance: Instance, method: Method) -> Iterator[Cell]:
    seeds = tuple(dict.fromkeys(suite.seeds)) if is_random(method) else suite.seeds[:1]
    repetitions = suite.repetitions if is_random(method) else 1
    for limit in limits_of(method, suite):
        for seed in seeds:
            for repetition in range(repetitions):
                yield Cell(instance, method, limit, seed, repetition, suite.version)
