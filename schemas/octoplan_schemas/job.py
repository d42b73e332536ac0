"""``octoplan.job/1``: what the flags hold, and declarative constraints (contract, section 7)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from octoplan_schemas.base import Document, NonNegative, StrictModel
from octoplan_schemas.plan import BackwardMode

Rank = Annotated[int, Field(ge=0)]
LayerNames = Annotated[tuple[str, ...], Field(min_length=1)]
LayerPair = Annotated[tuple[str, ...], Field(min_length=2)]


class Pin(StrictModel):
    """These layers run on this rank."""

    layers: LayerNames
    rank: Rank


class StagesPerRank(StrictModel):
    """How many stages a rank may hold."""

    min: Annotated[int, Field(gt=0)] | None = None
    max: Annotated[int, Field(gt=0)] | None = None
    equal: bool = False


class MaxInFlight(StrictModel):
    """At most this many microbatches with live activations on a rank."""

    rank: Rank
    microbatches: Annotated[int, Field(gt=0)]


class Constraint(StrictModel):
    """One declarative constraint; exactly one key is set."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    pin: Pin | None = None
    same_rank: LayerPair | None = None
    different_rank: LayerPair | None = None
    same_stage: LayerPair | None = None
    boundary_after: str | None = None
    stages_per_rank: StagesPerRank | None = None
    max_in_flight: MaxInFlight | None = None

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if len(self.model_fields_set) != 1 or getattr(self, *self.model_fields_set) is None:
            keys = ", ".join(type(self).model_fields)
            raise ValueError(f"a constraint has exactly one key of: {keys}")
        return self


class Job(Document):
    """Options of a compilation; a field that is absent leaves the flag's default."""

    FORMAT: ClassVar[str] = "octoplan.job/1"
    format: str = FORMAT
    microbatches: Annotated[int, Field(gt=0)] | None = None
    strategy: str | None = None
    backward: BackwardMode | None = None
    max_stages_per_device: Annotated[int, Field(gt=0)] | None = None
    memory_limit: NonNegative | str | None = None
    solver: str | None = None
    target: Literal["octoplan", "torch", "torchtitan", "megatron"] | None = None
    time_limit: NonNegative | None = None
    gap: NonNegative | str | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    max_evaluations: Annotated[int, Field(gt=0)] | None = None
    constraints: tuple[Constraint, ...] = ()
