"""Who feeds whom: edges between layers, and what a message between two stages carries.

A layer takes the outputs of the layer before it, then those of every skip edge that ends there, by ascending
source. A message from one stage to another carries the outputs of each source layer once, whatever number of
layers there need them; the gradient message back carries one gradient for each of its floating-point tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from octoplan_schemas import InputError, ModelGraph, Plan, stage_edges

#: Stands for the model's own inputs where a layer index is expected.
MODEL_INPUT = -1


@dataclass(frozen=True, slots=True)
class StageEdge:
    """A pair of stages, earlier first, and the source layers whose outputs go over it, ascending."""

    source: int
    destination: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The layers of every stage and the edges between stages.

    Attributes
    ----------
    bounds:
        ``[first, end)`` layers of every stage.
    feeds:
        For every layer, the layers whose outputs it takes, in the order of its arguments.
    edges_in, edges_out:
        For every stage, the edges that end or begin there, by ascending other stage.
    """

    bounds: tuple[tuple[int, int], ...]
    feeds: tuple[tuple[int, ...], ...]
    edges_in: tuple[tuple[StageEdge, ...], ...]
    edges_out: tuple[tuple[StageEdge, ...], ...]

    @classmethod
    def of(cls, plan: Plan, skips: Iterable[tuple[int, int]] = ()) -> StageGraph:
        """Build the graph of a plan.

        Parameters
        ----------
        plan:
            A valid plan.
        skips:
            Layer indices ``(source, destination)`` of every skip edge of the model.
        """
        bounds = tuple(stage.layers for stage in plan.stages)
        feeds = layer_feeds(bounds[-1][1], skips)
        edges = [
            StageEdge(a, b, _crossing(bounds[a], bounds[b], feeds)) for a, b in stage_edges(bounds, skips)
        ]
        stages = range(len(bounds))
        return cls(
            bounds,
            feeds,
            tuple(tuple(edge for edge in edges if edge.destination == stage) for stage in stages),
            tuple(tuple(edge for edge in edges if edge.source == stage) for stage in stages),
        )

    def exports(self, stage: int) -> tuple[int, ...]:
        """Return the layers of a stage whose outputs leave it; of the last stage, the last layer."""
        if not self.edges_out[stage]:
            return (self.bounds[stage][1] - 1,)
        return tuple(sorted({layer for edge in self.edges_out[stage] for layer in edge.layers}))

    def imports(self, stage: int) -> tuple[int, ...]:
        """Return the layers outside a stage that feed it; `MODEL_INPUT` for the first stage."""
        first = (MODEL_INPUT,) if stage == 0 else ()
        return first + tuple(layer for edge in self.edges_in[stage] for layer in edge.layers)

    @property
    def num_layers(self) -> int:
        """Number of layers of the model."""
        return len(self.feeds)


def layer_feeds(num_layers: int, skips: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return for every layer the layers that feed it: the one before, then skip edges by ascending source."""
    sources: list[list[int]] = [[] for _ in range(num_layers)]
    for source, destination in sorted(set(skips)):
        if not 0 <= source < destination < num_layers:
            raise InputError(
                f"skip edge {source} -> {destination} must lead to a later of {num_layers} layers"
            )
        sources[destination].append(source)
    return tuple((layer - 1, *sources[layer]) for layer in range(num_layers))


def model_skips(model: ModelGraph | None) -> list[tuple[int, int]]:
    """Return the skip edges of a model graph as pairs of layer indices; none without a model."""
    if model is None:
        return []
    index = model.layer_index()
    return [(index[skip.from_layer], index[skip.to_layer]) for skip in model.skips]


def _crossing(
    source: tuple[int, int], destination: tuple[int, int], feeds: tuple[tuple[int, ...], ...]
) -> tuple[int, ...]:
    needed = {feed for layer in range(*destination) for feed in feeds[layer]}
    return tuple(layer for layer in range(*source) if layer in needed)
