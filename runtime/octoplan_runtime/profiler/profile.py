"""Measure all layers of a workload, one after the other, each built when it is its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.microbatches import split_batch
from octoplan_runtime.profiler.layer_profile import LayerSizes, LayerTimes, layer_sizes, layer_times
from octoplan_runtime.profiler.layer_run import Finish, LayerRun
from octoplan_runtime.profiler.options import ProfileOptions
from octoplan_runtime.stage_graph import MODEL_INPUT, layer_feeds
from octoplan_runtime.stage_module import Values, as_values
from octoplan_runtime.workload import Workload
from octoplan_schemas import InputError, ModelGraph

#: Told the number of layers done and of all.
Report = Callable[[int, int], None]


def profile_workload(
    workload: Workload, name: str, options: ProfileOptions, report: Report | None = None
) -> ModelGraph:
    """Return the model graph of a workload with the times and sizes that its layers have here.

    Parameters
    ----------
    workload:
        What is trained.
    name:
        Of the model.
    options:
        How to measure.
    report:
        Called after every layer.
    """
    device = _device(options.device)
    entries = []
    for entry in _entries(workload, options, device):
        entries.append(entry)
        if report is not None:
            report(len(entries), workload.num_layers)
    names = [entry["name"] for entry in entries]
    return ModelGraph.from_document(
        {
            "format": ModelGraph.FORMAT,
            "name": name,
            "layers": entries,
            "skips": [
                {"from": names[a], "to": names[b], "bytes": entries[a]["output_bytes"]}
                for a, b in workload.skips
            ],
            "tied": [[names[int(path.split(".")[1])] for path in group] for group in workload.tied],
            "micro_batch_size": _microbatch_size(workload, options),
            "source": "profile",
        }
    )


def _device(text: str) -> torch.device:
    try:
        device = torch.device(text)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device: {text!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def _entries(workload: Workload, options: ProfileOptions, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield the layers of the document; of the outputs on the way only those are kept that a later layer takes."""
    dtype = getattr(torch, options.dtype)
    mode = ForwardMode(None if options.autocast is None else getattr(torch, options.autocast))
    inputs, target = _microbatch(workload, options, dtype, device)
    feeds = layer_feeds(workload.num_layers, workload.skips)
    last_use = {feed: layer for layer, sources in enumerate(feeds) for feed in sources}
    values: dict[int, Values] = {MODEL_INPUT: inputs}
    for index, sources in enumerate(feeds):
        layer = workload.layer_in(dtype)(index).to(device)
        arguments = [tensor for feed in sources for tensor in values[feed]]
        finish = _finish(workload, target) if index == workload.num_layers - 1 else None
        run = LayerRun(layer, arguments, index > 0, mode, device, finish)
        sizes = layer_sizes(run, options, device)
        times = layer_times(run, options, device)
        values[index] = _outputs(run)
        values = {feed: tensors for feed, tensors in values.items() if last_use.get(feed, -1) > index}
        yield _entry(index, type(layer).__name__.lower(), options.device_type, times, sizes)


def _microbatch(
    workload: Workload, options: ProfileOptions, dtype: torch.dtype, device: torch.device
) -> tuple[Values, Any]:
    """Return inputs and target of the first microbatch of the first step, apart from those of the others."""
    batch = workload.batch_in(0, dtype)
    inputs, target = (
        as_values(split_batch(part, options.microbatches, name)[0])
        for part, name in zip(batch, ("inputs", "targets"), strict=True)
    )
    own = tuple(value.clone().to(device) for value in inputs)
    targets = tuple(value.clone().to(device) for value in target)
    return own, targets if isinstance(batch[1], tuple) else targets[0]


def _microbatch_size(workload: Workload, options: ProfileOptions) -> int:
    inputs, _ = workload.batch(0)
    first = inputs if isinstance(inputs, torch.Tensor) else inputs[0]
    return int(first.shape[0]) // options.microbatches


def _finish(workload: Workload, target: Any) -> Finish:
    return lambda outputs: workload.loss(outputs[0] if len(outputs) == 1 else outputs, target)


def _outputs(run: LayerRun) -> Values:
    with torch.no_grad():
        run.forward()
    outputs = tuple(value.detach() for value in run.outputs)
    run.forget_outputs()
    return outputs


def _entry(index: int, kind: str, device_type: str, times: LayerTimes, sizes: LayerSizes) -> dict[str, Any]:
    return {
        "name": f"layers.{index}",
        "kind": kind,
        "cost": {device_type: asdict(times)},
        **asdict(sizes),
    }
