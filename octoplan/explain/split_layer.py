"""A problem in which one layer is two of half the size, and what that makes of assignments and candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from octoplan.tuner import Candidate
from octoplan_schemas import ModelGraph
from octoplan_solvers.constraints import PlacementConstraints
from octoplan_solvers.ops import FloatArray, IntArray
from octoplan_solvers.problem import Assignment, PipelineProblem


@dataclass(frozen=True)
class LayerSplit:
    """Layer ``layer`` becomes the layers ``layer`` and ``layer + 1``.

    Each half takes half of its time and of its bytes. Between them passes what the whole layer was given, as when the
    columns of a vocabulary head are dealt out: the second half needs the same input.
    """

    layer: int

    def problem(self, whole: PipelineProblem) -> PipelineProblem:
        """Return the problem with the halves."""
        names = whole.layer_names
        return replace(
            whole,
            forward_s=self._halved(whole.forward_s),
            backward_input_s=self._halved(whole.backward_input_s),
            backward_weight_s=self._halved(whole.backward_weight_s),
            state_bytes=self._halved(whole.state_bytes),
            activation_bytes=self._halved(whole.activation_bytes),
            retained_bytes=self._halved(whole.retained_bytes),
            weight_stash_bytes=self._halved(whole.weight_stash_bytes),
            workspace_bytes=self._halved(whole.workspace_bytes),
            output_bytes=self._output_bytes(whole),
            skip_source=self._moved(whole.skip_source, last_half=True),
            skip_destination=self._moved(whole.skip_destination, last_half=False),
            layer_names=tuple(name for index, name in enumerate(names) for name in self._names(index, name)),
            constraints=self._constraints(whole.constraints),
        )

    def model(self, whole: ModelGraph) -> ModelGraph:
        """Return the model's layers with both halves, of which only the kinds are of use."""
        layers = [
            layer.model_copy(update={"name": name})
            for index, layer in enumerate(whole.layers)
            for name in self._names(index, layer.name)
        ]
        return whole.model_copy(update={"layers": tuple(layers)})

    def assignment(self, whole: Assignment) -> Assignment:
        """Return the same stages, with both halves in the stage that held the whole."""
        bounds = [(first + (first > self.layer), end + (end > self.layer)) for first, end in whole.boundaries]
        return Assignment(tuple(bounds), whole.ranks)

    def candidate(self, whole: Candidate) -> Candidate:
        """Return the same stages under the same policy."""
        return replace(whole, cuts=whole.cuts + (whole.cuts > self.layer))

    def _halved(self, values: FloatArray) -> FloatArray:
        """Return ``(..., L + 1)`` values with half of the layer's in both places."""
        result = np.repeat(values, self._copies(values.shape[-1]), axis=-1)
        result[..., self.layer : self.layer + 2] /= 2
        return result

    def _output_bytes(self, whole: PipelineProblem) -> FloatArray:
        result = np.repeat(whole.output_bytes, self._copies(whole.num_layers))
        given = max(self.layer - 1, 0)
        result[self.layer] = whole.output_bytes[given]
        return result

    def _copies(self, num_layers: int) -> IntArray:
        return np.where(np.arange(num_layers) == self.layer, 2, 1)

    def _names(self, index: int, name: str) -> list[str]:
        return [f"{name} (first half)", f"{name} (second half)"] if index == self.layer else [name]

    def _moved(self, layers: IntArray, *, last_half: bool) -> IntArray:
        return layers + (layers >= self.layer if last_half else layers > self.layer)

    def _halves(self, layer: int) -> tuple[int, ...]:
        """Return what becomes of a layer."""
        if layer == self.layer:
            return layer, layer + 1
        return (layer + (layer > self.layer),)

    def _constraints(self, whole: PlacementConstraints) -> PlacementConstraints:
        """Return constraints in which both halves keep what the layer kept."""
        return replace(
            whole,
            pins=tuple((half, rank) for layer, rank in whole.pins for half in self._halves(layer)),
            same_rank=tuple(
                tuple(half for layer in group for half in self._halves(layer)) for group in whole.same_rank
            ),
            different_rank=tuple(
                dict.fromkeys(
                    tuple(self._halves(layer)[which] for layer in group)
                    for group in whole.different_rank
                    for which in (0, -1)
                )
            ),
            same_stage=tuple(
                (self._halves(first)[0], self._halves(end - 1)[-1] + 1) for first, end in whole.same_stage
            ),
            boundary_after=tuple(self._halves(layer)[-1] for layer in whole.boundary_after),
        )
