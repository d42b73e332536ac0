"""Runs one rank's program: each op word in turn, with what it takes and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from octoplan_runtime.auxiliary import collected_losses
from octoplan_runtime.backward import backward_fused, backward_input, backward_weight
from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.mailbox import Mailbox
from octoplan_runtime.progress import OpTimes, Progress
from octoplan_runtime.replicas import Replica
from octoplan_runtime.stage_graph import MODEL_INPUT, StageGraph
from octoplan_runtime.stage_module import Values
from octoplan_runtime.weight_work import WeightWork
from octoplan_schemas import InputError, OpWord

#: Called with the last layer's output and the targets of one microbatch; returns a scalar.
LossFunction = Callable[[Any, Any], torch.Tensor]
#: (stage, microbatch)
_OpKey = tuple[int, int]


@dataclass(slots=True)
class StepState:
    """One step: its microbatches, and its results by microbatch number, whatever the order of execution.

    ``targets`` is None for a forward alone. ``shares`` is each microbatch's share of the step's loss; they sum to 1.
    """

    number: int
    num_microbatches: int
    inputs: Sequence[Values]
    targets: Sequence[Any] | None
    training: bool
    shares: Sequence[float] = ()
    #: Sum of this rank's auxiliary losses over microbatches.
    auxiliary_loss: torch.Tensor | None = None
    losses: dict[int, torch.Tensor] = field(default_factory=dict)
    outputs: dict[int, Values] = field(default_factory=dict)
    saved: dict[_OpKey, _Saved] = field(default_factory=dict)
    weight_work: dict[_OpKey, WeightWork] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a forward leaves for its backward: by layer, what came in and what went out (or the loss)."""

    inputs: dict[int, Values]
    outputs: dict[int, Values]
    auxiliary_losses: list[torch.Tensor]

    def differentiable_inputs(self) -> list[torch.Tensor]:
        """Return what came from other stages and needs a gradient."""
        received = (values for layer, values in self.inputs.items() if layer != MODEL_INPUT)
        return [value for values in received for value in values if value.requires_grad]


class Interpreter:
    """The ops of one rank.

    Parameters
    ----------
    program:
        This rank's op words.
    graph:
        Edges between stages.
    stages:
        This rank's stages.
    loss_function:
        Loss of one microbatch.
    mailbox:
        What goes between ops.
    device, mode:
        Where and how forwards run.
    hold:
        Called at the end of every compute op, before it counts as done, with the op's word and its start; emulated
        devices sleep in it.
    progress, times:
        Told of every op.
    """

    def __init__(
        self,
        program: Sequence[OpWord],
        graph: StageGraph,
        stages: Mapping[int, Replica],
        loss_function: LossFunction,
        mailbox: Mailbox,
        device: torch.device,
        mode: ForwardMode,
        hold: Callable[[OpWord, float], None],
        progress: Progress,
        times: OpTimes,
    ) -> None:
        self._program = program
        self._graph = graph
        self._stages = stages
        self._loss_function = loss_function
        self._mailbox = mailbox
        self._device = device
        self._mode = mode
        self._hold = hold
        self._progress = progress
        self._times = times
        self._last_stage = len(graph.bounds) - 1
        self._run_word = {
            "F": self._forward,
            "B": self._backward,
            "I": self._backward_input,
            "W": self._backward_weight,
            "SEND_F": self._send,
            "SEND_B": self._send,
            "RECV_F": self._receive,
            "RECV_B": self._receive,
        }

    def run(self, state: StepState) -> None:
        """Run the program in its order; without training, the forward ops and transfers alone."""
        self._mailbox.clear()
        for position, word in enumerate(self._program):
            if state.training or word.kind.endswith("F"):
                self._enter(word, position)
                self._run_word[word.kind](state, word, position)
        self._progress.enter("the wait for the last sends")
        self._mailbox.flush()
        self._times.resolve()

    def _enter(self, word: OpWord, position: int) -> None:
        self._progress.enter(str(word))
        self._times.begin(position)

    def _leave(self, word: OpWord, position: int) -> None:
        """End a compute op."""
        self._hold(word, self._times.start[position])
        self._times.finish(position)

    def _forward(self, state: StepState, word: OpWord, position: int) -> None:
        stage, microbatch = word.stage, word.microbatch
        received = self._collect_inputs(state, stage, microbatch)
        self._enter(word, position)
        outputs, auxiliary_losses = self._run_stage(state, word, received)
        for edge in self._graph.edges_out[stage]:
            values = [value.detach() for layer in edge.layers for value in outputs[layer]]
            self._mailbox.put(stage, edge.destination, microbatch, values)
        if state.training:
            state.saved[stage, microbatch] = _Saved(received, outputs, auxiliary_losses)
            _add_auxiliary(state, auxiliary_losses)
        self._leave(word, position)

    def _run_stage(
        self, state: StepState, word: OpWord, received: dict[int, Values]
    ) -> tuple[dict[int, Values], list[torch.Tensor]]:
        """Return the outputs that leave the stage, or the loss, and the losses that its layers have added."""
        stage, microbatch = word.stage, word.microbatch
        mode, device = self._mode, self._device
        randomness = mode.randomness(state.number, microbatch, device) if state.training else None
        with mode.precision(device), collected_losses() as auxiliary_losses:
            outputs = self._stages[stage].forward(received, randomness)
            if stage == self._last_stage:
                outputs = self._end_of_model(state, outputs, microbatch)
        self._mailbox.require_specs(stage, outputs)
        return outputs, auxiliary_losses

    def _end_of_model(
        self, state: StepState, outputs: dict[int, Values], microbatch: int
    ) -> dict[int, Values]:
        """Keep the output, or compute the loss, which then stands for the output."""
        ((layer, values),) = outputs.items()
        if state.targets is None:
            state.outputs[microbatch] = values
            return outputs
        loss = self._loss_function(values[0] if len(values) == 1 else values, state.targets[microbatch])
        if loss.numel() != 1:
            raise InputError(f"the loss of a microbatch must be one number, not of shape {tuple(loss.shape)}")
        state.losses[microbatch] = loss.detach().reshape(())
        return {layer: (loss,)}

    def _backward(self, state: StepState, word: OpWord, position: int) -> None:
        saved = state.saved.pop((word.stage, word.microbatch))
        roots, gradients = self._collect_gradients(state, word.stage, word.microbatch, saved)
        self._enter(word, position)
        backward_fused(roots, gradients, saved.differentiable_inputs(), self._stages[word.stage].parameters())
        self._hand_back(word.stage, word.microbatch, saved)
        self._leave(word, position)

    def _backward_input(self, state: StepState, word: OpWord, position: int) -> None:
        stage, microbatch = word.stage, word.microbatch
        saved = state.saved.pop((stage, microbatch))
        roots, gradients = self._collect_gradients(state, stage, microbatch, saved)
        self._enter(word, position)
        work = backward_input(roots, gradients, saved.differentiable_inputs())
        state.weight_work[stage, microbatch] = work
        self._hand_back(stage, microbatch, saved)
        self._leave(word, position)

    def _backward_weight(self, state: StepState, word: OpWord, position: int) -> None:
        work = state.weight_work.pop((word.stage, word.microbatch))
        backward_weight(work, self._stages[word.stage].parameters())
        self._leave(word, position)

    def _send(self, state: StepState, word: OpWord, position: int) -> None:
        self._mailbox.send(word, position)

    def _receive(self, state: StepState, word: OpWord, position: int) -> None:
        self._mailbox.receive(word, position)

    def _collect_inputs(self, state: StepState, stage: int, microbatch: int) -> dict[int, Values]:
        """Return the outputs that feed a stage, as leaves of its own graph."""
        received: dict[int, Values] = {MODEL_INPUT: state.inputs[microbatch]} if stage == 0 else {}
        for edge in self._graph.edges_in[stage]:
            values = iter(self._mailbox.take(edge.source, stage, microbatch))
            for layer in edge.layers:
                tensors = (next(values) for _ in self._mailbox.specs[layer])
                received[layer] = tuple(_leaf(tensor) if state.training else tensor for tensor in tensors)
        return received

    def _collect_gradients(
        self, state: StepState, stage: int, microbatch: int, saved: _Saved
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the outputs and losses that require a gradient, and their gradients, summed over the stages they
        feed."""
        auxiliary = saved.auxiliary_losses
        scales = [torch.full_like(loss, 1.0 / state.num_microbatches) for loss in auxiliary]
        if stage == self._last_stage:
            ((loss,),) = saved.outputs.values()
            share = torch.full_like(loss, state.shares[microbatch])
            return _requiring_gradients([loss, *auxiliary], [share, *scales])
        sums: dict[tuple[int, int], torch.Tensor] = {}
        for edge in self._graph.edges_out[stage]:
            gradients = self._mailbox.take(edge.destination, stage, microbatch)
            for place, gradient in zip(self._mailbox.gradient_places(edge), gradients, strict=True):
                # Not in place: the gradient may be shared with the stage that it comes from.
                sums[place] = sums[place] + gradient if place in sums else gradient
        roots = [saved.outputs[layer][number] for layer, number in sums]
        return _requiring_gradients([*roots, *auxiliary], [*sums.values(), *scales])

    def _hand_back(self, stage: int, microbatch: int, saved: _Saved) -> None:
        """Put the gradients of a stage's inputs where the stages before it, or their SEND, find them."""
        for edge in self._graph.edges_in[stage]:
            leaves = [saved.inputs[layer][number] for layer, number in self._mailbox.gradient_places(edge)]
            gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
            self._mailbox.put(stage, edge.source, microbatch, gradients)
            for leaf in leaves:
                leaf.grad = None


def _add_auxiliary(state: StepState, losses: Sequence[torch.Tensor]) -> None:
    for loss in losses:
        if loss.numel() != 1:
            raise InputError(f"add_loss takes one number, not a tensor of shape {tuple(loss.shape)}")
        value = loss.detach().reshape(()).to(torch.float64)
        state.auxiliary_loss = value if state.auxiliary_loss is None else state.auxiliary_loss + value


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    differentiable = tensor.is_floating_point() or tensor.is_complex()
    return tensor.detach().requires_grad_() if differentiable else tensor


def _requiring_gradients(
    roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    pairs = [pair for pair in zip(roots, gradients, strict=True) if pair[0].requires_grad]
    return [root for root, _ in pairs], [gradient for _, gradient in pairs]
