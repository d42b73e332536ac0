"""What has been produced, or is on its way, and has not been consumed yet.

Between two stages of one rank a tensor is put here by its producer and taken by its consumer. Between two
ranks the SEND takes it, and on the other side the RECV puts a transfer here that the consumer waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from octoplan_runtime.progress import OpTimes, Progress
from octoplan_runtime.stage_graph import StageEdge, StageGraph
from octoplan_runtime.stage_module import Values
from octoplan_runtime.tensor_specs import LayerSpecs, TensorSpec
from octoplan_runtime.transport import Receive, Transport
from octoplan_schemas import InputError, OpWord

#: (source stage, destination stage, microbatch): from an earlier stage an activation, from a later one a
#: gradient.
_Key = tuple[int, int, int]
_LABEL = TensorSpec((3,), torch.int64)


class Mailbox:
    """The tensors between ops of one rank.

    Parameters
    ----------
    graph:
        Edges between stages.
    ranks:
        The rank of every stage.
    specs:
        Shapes and dtypes of what goes over the edges.
    transport:
        The way to other ranks.
    progress, times:
        Told when a consumer waits, and when a transfer is done.
    labelled:
        Whether to send (source stage, destination stage, microbatch) ahead of every message and to compare it on
        arrival: finds a mismatch that would otherwise be a wrong gradient, at the price of one more transfer each.
    """

    def __init__(
        self,
        graph: StageGraph,
        ranks: Sequence[int],
        specs: LayerSpecs,
        transport: Transport,
        progress: Progress,
        times: OpTimes,
        *,
        labelled: bool = False,
    ) -> None:
        self.specs = specs
        self._labelled = labelled
        self._ranks = ranks
        self._transport = transport
        self._progress = progress
        self._times = times
        self._edges = {(edge.source, edge.destination): edge for edges in graph.edges_out for edge in edges}
        self._sent_layers = [
            sorted({layer for edge in edges for layer in edge.layers}) for edges in graph.edges_out
        ]
        self._here: dict[_Key, list[torch.Tensor]] = {}
        self._coming: dict[_Key, tuple[OpWord, int, Receive]] = {}

    def clear(self) -> None:
        """Forget what an interrupted step has left."""
        self._here.clear()
        self._coming.clear()

    def put(self, source: int, destination: int, microbatch: int, tensors: list[torch.Tensor]) -> None:
        """Hand over from one stage to another, or to the SEND between them."""
        self._here[source, destination, microbatch] = tensors

    def take(self, source: int, destination: int, microbatch: int) -> list[torch.Tensor]:
        """Return what a stage handed to another; waits here, at the consumer, if it is still on its way."""
        key = source, destination, microbatch
        if key in self._here:
            return self._here.pop(key)
        word, position, receive = self._coming.pop(key)
        self._progress.enter(str(word))
        tensors = receive.wait()
        self._times.finish(position)
        if self._labelled:
            _require_label(word, key, tensors.pop(0))
        return tensors

    def send(self, word: OpWord, position: int) -> None:
        """Post what the word's stage has produced to the other stage's rank."""

        def done(start_s: float, end_s: float) -> None:
            self._times.start[position], self._times.end[position] = start_s, end_s

        key = word.stage, word.other_stage, word.microbatch
        tensors = self._here.pop(key)
        if self._labelled:
            tensors = [torch.tensor(key, device=self._transport.device), *tensors]
        self._transport.send(word, tensors, self._ranks[word.other_stage], done)

    def receive(self, word: OpWord, position: int) -> None:
        """Post a receive; `take` waits for it."""
        source, destination = word.other_stage, word.stage
        if source < destination:
            edge = self._edges[source, destination]
            specs = [spec for layer in edge.layers for spec in self.specs[layer]]
        else:
            edge = self._edges[destination, source]
            specs = [self.specs[layer][number] for layer, number in self.gradient_places(edge)]
        if self._labelled:
            specs.insert(0, _LABEL)
        receive = self._transport.receive(specs, self._ranks[source])
        self._coming[source, destination, word.microbatch] = (word, position, receive)

    def require_specs(self, stage: int, outputs: Mapping[int, Values]) -> None:
        """Refuse outputs of another shape or dtype than agreed: the receiver's buffers would hold garbage."""
        for layer in self._sent_layers[stage]:
            found = tuple(TensorSpec.of(value) for value in outputs[layer])
            if found != self.specs[layer]:
                raise InputError(
                    f"layer {layer} gave {_shown(found)} and had agreed on {_shown(self.specs[layer])}; shapes and "
                    "dtypes must stay the same: keep autocast as it was in the first step"
                )

    def flush(self) -> None:
        """Return when every send is done."""
        self._transport.flush()

    def gradient_places(self, edge: StageEdge) -> list[tuple[int, int]]:
        """Return (layer, number of its output) of every tensor of an edge for which a gradient comes back."""
        return [
            (layer, number)
            for layer in edge.layers
            for number, spec in enumerate(self.specs[layer])
            if spec.has_gradient
        ]


def _shown(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{list(spec.shape)} of {spec.dtype}" for spec in specs)


def _require_label(word: OpWord, expected: _Key, label: torch.Tensor) -> None:
    found = tuple(label.tolist())
    if found != expected:
        raise RuntimeError(
            f"{word} received what stage {found[0]} sent to stage {found[1]} for microbatch {found[2]}"
        )
