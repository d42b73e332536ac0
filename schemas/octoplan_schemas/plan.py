"""``octoplan.plan/1``: stages, placement and one program per rank (contract, section 3)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from octoplan_schemas.base import Document, Finite, JsonValue, NonNegative, StrictModel

BackwardMode = Literal["split", "fused"]


class InputReference(StrictModel):
    """Name and canonical SHA-256 of an input; an empty hash means unknown."""

    name: str
    sha256: str


class PlanJob(StrictModel):
    """The job as compiled."""

    microbatches: Annotated[int, Field(gt=0)]
    backward: BackwardMode
    max_stages_per_device: Annotated[int, Field(gt=0)]
    memory_limit: NonNegative | str | None


class Stage(StrictModel):
    """A run of neighbouring layers ``[first, end)`` on one rank."""

    id: Annotated[int, Field(ge=0)]
    layers: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)]]
    rank: Annotated[int, Field(ge=0)]


class StageCost(StrictModel):
    """What one microbatch costs on a stage: seconds on its rank, op overhead included, and bytes."""

    forward_s: NonNegative
    backward_input_s: NonNegative
    backward_weight_s: NonNegative
    #: Both backward parts in one op.
    backward_s: NonNegative
    activation_bytes: NonNegative
    retained_bytes: NonNegative
    weight_stash_bytes: NonNegative
    workspace_bytes: NonNegative


class EdgeCost(StrictModel):
    """A tensor handed from a stage to a later one on another rank, and its gradient back."""

    from_stage: Annotated[int, Field(alias="from", ge=0)]
    to_stage: Annotated[int, Field(alias="to", ge=0)]
    bytes: NonNegative
    #: Forward and backward: seconds that a transfer keeps its rank pair busy, and from then to its arrival.
    transfer_s: tuple[NonNegative, NonNegative]
    latency_s: tuple[NonNegative, NonNegative]


class RankPrediction(StrictModel):
    """What the simulator says of one rank."""

    busy_s: NonNegative
    peak_bytes: NonNegative
    state_bytes: NonNegative
    idle_s: NonNegative | None = None
    peak_at_s: NonNegative | None = None
    #: Limit of the peak that the plan was compiled under; None: no limit.
    limit_bytes: NonNegative | None = None


class Prediction(StrictModel):
    """What the simulator says of the plan, and the certificate."""

    makespan_s: NonNegative
    lower_bound_s: NonNegative | None
    gap: Finite | None
    bubble_fraction: Finite
    ranks: tuple[RankPrediction, ...]
    #: Name of the bound that ``lower_bound_s`` comes from.
    binding_bound: str | None = None
    #: Costs that the prediction rests on: with them a plan is drawn and emulated without model and cluster.
    stages: tuple[StageCost, ...] = ()
    edges: tuple[EdgeCost, ...] = ()


class Provenance(StrictModel):
    """Where the plan comes from; tools may add what they know."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    strategy: str


class Plan(Document):
    """A complete plan: what every rank does, in which order."""

    FORMAT: ClassVar[str] = "octoplan.plan/1"
    format: str = FORMAT
    model: InputReference
    cluster: InputReference
    job: PlanJob
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    programs: Annotated[tuple[tuple[str, ...], ...], Field(min_length=1)]
    predicted: Prediction
    provenance: Provenance

    @property
    def num_ranks(self) -> int:
        """Number of ranks, one program each."""
        return len(self.programs)

    def stages_of(self, rank: int) -> list[Stage]:
        """Return the stages of a rank, in model order."""
        return [stage for stage in self.stages if stage.rank == rank]
