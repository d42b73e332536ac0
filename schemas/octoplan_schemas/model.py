"""``octoplan.model/1``: the model graph, one entry per indivisible layer (contract, section 1)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from octoplan_schemas.base import Document, NonNegative, StrictModel

#: The device type that stands for every type not named.
ANY_DEVICE_TYPE = "*"


class OpCost(StrictModel):
    """Seconds of one microbatch on one device type."""

    forward_s: NonNegative
    backward_input_s: NonNegative
    backward_weight_s: NonNegative


class Layer(StrictModel):
    """One indivisible unit of the model; times and sizes are those of ONE microbatch."""

    name: Annotated[str, Field(min_length=1)]
    kind: Annotated[str, Field(min_length=1)]
    cost: Annotated[dict[str, OpCost], Field(min_length=1)]
    state_bytes: NonNegative
    activation_bytes: NonNegative
    weight_stash_bytes: NonNegative
    workspace_bytes: NonNegative
    output_bytes: NonNegative
    #: What of ``activation_bytes`` stays until the end of W; by default all of it.
    retained_bytes: NonNegative | None = None

    @model_validator(mode="after")
    def _retained_is_a_share(self) -> Self:
        if self.retained_bytes is not None and self.retained_bytes > self.activation_bytes:
            raise ValueError(
                f"layer {self.name!r}: retained_bytes {self.retained_bytes!r} must not exceed "
                f"activation_bytes {self.activation_bytes!r}"
            )
        return self

    def cost_on(self, device_type: str) -> OpCost | None:
        """Return the cost on a device type, by name or by ``"*"``; None if the layer gives neither."""
        return self.cost.get(device_type, self.cost.get(ANY_DEVICE_TYPE))

    @property
    def retained(self) -> float:
        """Bytes held from the start of F to the end of W when the backward is split."""
        return self.activation_bytes if self.retained_bytes is None else self.retained_bytes


class SkipEdge(StrictModel):
    """A tensor that goes from one layer to a later one besides the chain."""

    from_layer: Annotated[str, Field(alias="from")]
    to_layer: Annotated[str, Field(alias="to")]
    bytes: NonNegative


class ModelGraph(Document):
    """A model as a chain of layers with costs, plus skip edges and tied parameters."""

    FORMAT: ClassVar[str] = "octoplan.model/1"
    format: str = FORMAT
    name: Annotated[str, Field(min_length=1)]
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    skips: tuple[SkipEdge, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    sequence_length: Annotated[int, Field(gt=0)] | None = None
    micro_batch_size: Annotated[int, Field(gt=0)] | None = None
    source: Literal["roofline", "profile", "table"] | None = None

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        position = self.layer_index()
        if len(position) != len(self.layers):
            # The index keeps the last position of a name, so an earlier one is a double.
            double = next(layer.name for i, layer in enumerate(self.layers) if position[layer.name] != i)
            raise ValueError(f"layers: the name {double!r} occurs twice; layer names must be unique")
        for index, skip in enumerate(self.skips):
            for field, name in (("from", skip.from_layer), ("to", skip.to_layer)):
                if name not in position:
                    raise ValueError(f"skips.{index}.{field}: no layer is called {name!r}")
            if position[skip.from_layer] >= position[skip.to_layer]:
                raise ValueError(
                    f"skips.{index}: must lead to a later layer, not {skip.from_layer!r} to {skip.to_layer!r}"
                )
        for index, group in enumerate(self.tied):
            unknown = [name for name in group if name not in position]
            if unknown:
                raise ValueError(f"tied.{index}: no layer is called {unknown[0]!r}")
        return self

    def layer_index(self) -> dict[str, int]:
        """Return the position of every layer by name."""
        return {layer.name: index for index, layer in enumerate(self.layers)}
