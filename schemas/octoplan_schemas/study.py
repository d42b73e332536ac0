"""``octoplan.study/1``: a suite of instances and methods to compare (docs/studies.md)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from octoplan_schemas.base import Document, JsonValue, NonNegative, Positive, StrictModel


def _at_most_one(value: float) -> float:
    if value > 1:
        raise ValueError(f"must be at most 1, not {value!r}")
    return value


def _any_of(*fields: list[str]) -> dict[str, Any]:
    """Return the JSON Schema that asks for one of several groups of fields."""
    return {"anyOf": [{"required": group} for group in fields]}


#: Names become columns and headings: they begin with a letter or digit, so that no spreadsheet reads a formula.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\x00-\x1f\x7f]{0,79}$")]
#: Sizes of a suite that comes from a stranger stay within what a machine can hold.
Count = Annotated[int, Field(gt=0, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Share = Annotated[NonNegative, AfterValidator(_at_most_one)]
Dimension = Literal["partition", "placement", "order"]
Numbers = Annotated[tuple[NonNegative, ...], Field(min_length=1)]


class ModelSource(StrictModel):
    """A model of an instance, with what its import needs; ``source`` is a shipped name or a path."""

    source: Annotated[str, Field(min_length=1)]
    config: str | None = None
    name: Name | None = None
    sequence_length: Count | None = None
    micro_batch_size: Count | None = None
    tensor_parallel: Count = 1
    data_parallel: Count = 1
    granularity: Literal["block", "sublayer"] = "block"


class RandomInstances(StrictModel):
    """Instances drawn at random; every combination of the lists is one, and the same seed gives the same one."""

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    #: Layers between the embedding and the head.
    layers: Annotated[tuple[Annotated[int, Field(gt=0, le=2000)], ...], Field(min_length=1)]
    ranks: Annotated[tuple[Annotated[int, Field(gt=0, le=256)], ...], Field(min_length=1)]
    #: Standard deviation of the logarithm of the layers' times; 0 makes them equal.
    layer_heterogeneity: Numbers = (0.5,)
    #: Time of the head, in mean layers.
    head_weight: Numbers = (2.0,)
    #: Share of the devices that are slow, and how many times slower they are.
    slow_share: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.0,)
    slow_factor: Annotated[tuple[Positive, ...], Field(min_length=1)] = (2.0,)
    #: Seconds of a transfer between neighbours, as a share of a mean layer's forward.
    transfer_share: Numbers = (0.05,)
    #: Memory of a device beyond its share of the state, in multiples of what 1F1B holds on its first rank.
    tightness: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1.5,)


class InstanceGrid(StrictModel):
    """Every model on every cluster (or random instances), with every number of microbatches and memory limit."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _any_of(["models", "clusters"], ["random"]),
                _any_of(["microbatches"], ["microbatches_per_rank"]),
            ]
        }
    )

    models: tuple[Annotated[str, Field(min_length=1)] | ModelSource, ...] = ()
    clusters: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    random: RandomInstances | None = None
    microbatches: tuple[Count, ...] = ()
    microbatches_per_rank: tuple[Count, ...] = ()
    memory_limits: Annotated[tuple[NonNegative | str, ...], Field(min_length=1)] = ("95%",)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        listed = bool(self.models) and bool(self.clusters)
        if listed == (self.random is not None) or bool(self.models) != bool(self.clusters):
            raise ValueError("give models and clusters, or random; not both, and none alone")
        if not self.microbatches and not self.microbatches_per_rank:
            raise ValueError("give microbatches or microbatches_per_rank")
        return self


class Method(StrictModel):
    """A way to make a plan: exactly one of ``strategy``, ``solver``, ``search`` and ``rule``."""

    model_config = ConfigDict(json_schema_extra=_any_of(["strategy"], ["solver"], ["search"], ["rule"]))

    name: Name
    #: As in ``--strategy``.
    strategy: str | None = None
    #: A placement solver alone; its assignments are ordered by list scheduling.
    solver: str | None = None
    #: Annealing over these dimensions alone; the others stay as in the starting plan. Empty: that plan itself.
    search: tuple[Dimension, ...] | None = None
    #: A published tuning rule.
    rule: Literal["octopipe"] | None = None
    #: Fields of `octoplan.CompileOptions` that differ from the defaults.
    options: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.strategy, self.solver, self.search, self.rule)) != 1:
            raise ValueError(f"method {self.name!r}: give exactly one of strategy, solver, search and rule")
        if self.search is not None and len(set(self.search)) != len(self.search):
            raise ValueError(f"method {self.name!r}: search names a dimension twice")
        return self


class CellLimits(StrictModel):
    """What one cell may use before it is stopped and recorded as a failure."""

    time_s: Positive = 600
    memory_bytes: Positive = 8e9


class Study(Document):
    """A suite: every method on every instance, for every limit, seed and repetition."""

    FORMAT: ClassVar[str] = "octoplan.study/1"
    format: str = FORMAT
    name: Name
    #: Part of every cell's identity: another version is run anew.
    version: Annotated[str, Field(min_length=1, max_length=40)] = "1"
    description: str = ""
    instances: Annotated[tuple[InstanceGrid, ...], Field(min_length=1)]
    methods: Annotated[tuple[Method, ...], Field(min_length=1)]
    #: Methods that speedups are measured against.
    references: tuple[str, ...] = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    repetitions: Count = 1
    #: Limits of a search, one of the two: seconds, or evaluations (then it is reproducible).
    time_limits_s: tuple[NonNegative, ...] = ()
    max_evaluations: tuple[Count, ...] = ()
    cell: CellLimits = CellLimits()

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [method.name for method in self.methods]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"methods: the name {name!r} occurs twice")
        for name in self.references:
            if name not in names:
                raise ValueError(f"references: no method is called {name!r}")
        if self.time_limits_s and self.max_evaluations:
            raise ValueError("give time_limits_s or max_evaluations, not both")
        return self
