"""Times and sizes of one layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from octoplan_runtime.profiler.layer_run import LayerRun
from octoplan_runtime.profiler.meter import MemoryMeter, Stopwatch
from octoplan_runtime.profiler.options import ProfileOptions
from octoplan_runtime.profiler.saved_tensors import SavedTensors, storages


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Median seconds."""

    forward_s: float
    backward_input_s: float
    backward_weight_s: float


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Bytes, as the model graph defines them (contract, section 1)."""

    activation_bytes: int
    retained_bytes: int
    weight_stash_bytes: int
    workspace_bytes: int
    output_bytes: int
    state_bytes: int


def layer_times(run: LayerRun, options: ProfileOptions, device: torch.device) -> LayerTimes:
    """Time the ops of a layer, each repeated in the order in which they follow each other in training."""
    repeat = _split if options.backward == "split" else _fused
    watch = Stopwatch(device)
    rows = [repeat(run, watch.seconds) for _ in range(options.warm_up + options.repetitions)]
    return LayerTimes(*(median(column) for column in zip(*rows[options.warm_up :], strict=True)))


def _split(run: LayerRun, seconds: Callable[[Callable[[], object]], float]) -> tuple[float, float, float]:
    forward_s = seconds(run.forward)
    run.prepare_backward()
    return forward_s, seconds(run.backward_input), seconds(run.backward_weight)


def _fused(run: LayerRun, seconds: Callable[[Callable[[], object]], float]) -> tuple[float, float, float]:
    """Only the sum of the two counts; the part for the input is measured apart and cut to fit."""
    forward_s = seconds(run.forward)
    run.prepare_backward()
    input_s = seconds(run.gradients_of_inputs) if run.inputs else 0.0
    whole_s = seconds(run.backward)
    return forward_s, min(input_s, whole_s), max(whole_s - input_s, 0.0)


def layer_sizes(run: LayerRun, options: ProfileOptions, device: torch.device) -> LayerSizes:
    """Measure what the ops of a layer hold and allocate."""
    layer = run.layer
    saved = SavedTensors([*layer.parameters(), *layer.buffers()])
    meter = MemoryMeter(device)
    with meter.watching():
        meter.live()
        with saved.noted():
            run.forward()
        output_bytes = sum(value.numel() * value.element_size() for value in run.outputs)
        activations = saved.storages()
        workspaces = [meter.peak() - meter.live()]
        run.prepare_backward()
        held = meter.live()
        run.backward_input()
        workspaces.append(meter.peak() - held)
        retained = saved.storages()
        assert run.weight_work is not None, "I has run"
        stash = storages(run.weight_work.gradients())
        held = meter.live()
        run.backward_weight()
        workspaces.append(meter.peak() - held)
    return LayerSizes(
        activation_bytes=sum(activations.values()),
        retained_bytes=sum(size for place, size in retained.items() if place in activations),
        weight_stash_bytes=sum(size for place, size in stash.items() if place not in retained),
        workspace_bytes=max(0, *workspaces),
        output_bytes=output_bytes,
        state_bytes=_state_bytes(layer, options.optimizer_tensors),
    )


def _state_bytes(layer: torch.nn.Module, optimizer_tensors: int) -> int:
    """Weights and buffers; of what is trained, gradients and the optimizer's tensors as well."""
    size = sum(buffer.nbytes for buffer in layer.buffers())
    for parameter in layer.parameters():
        size += parameter.nbytes * (2 + optimizer_tensors if parameter.requires_grad else 1)
    return size
