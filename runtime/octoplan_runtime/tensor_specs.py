"""Shapes and dtypes of what stages hand over, agreed once before the first microbatch.

Each rank runs its own stages on the meta device (no memory, no arithmetic) and broadcasts what comes out as
plain integers. A layer that the meta device cannot run (data-dependent shapes) is run once for real, on
zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist

from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.replicas import is_sharded
from octoplan_runtime.stage_graph import MODEL_INPUT, StageGraph
from octoplan_runtime.stage_module import StageModule, Values

#: The position in this list is the number that stands for a dtype on the wire: append only.
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype)

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient comes back for it."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    @property
    def num_bytes(self) -> int:
        """Size of the tensor."""
        return prod(self.shape) * self.dtype.itemsize

    def empty(self, device: torch.device) -> torch.Tensor:
        """Allocate such a tensor."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)


#: Specs of the outputs of each layer.
LayerSpecs = dict[int, tuple[TensorSpec, ...]]


def agree(
    graph: StageGraph,
    ranks: Sequence[int],
    modules: Mapping[int, StageModule],
    inputs: tuple[TensorSpec, ...] | None,
    group: dist.ProcessGroup | None,
    device: torch.device,
    mode: ForwardMode,
) -> LayerSpecs:
    """Agree on the outputs of every layer that leave their stage; every rank of the group takes part.

    Parameters
    ----------
    graph:
        Edges between stages.
    ranks:
        The rank of every stage.
    modules:
        This rank's stages.
    inputs:
        Specs of one microbatch of inputs; needed where stage 0 is.
    group:
        Process group with one process per rank; None for the default group.
    device:
        Where the stages run.
    mode:
        How they run: autocast decides dtypes.
    """
    specs: LayerSpecs = {} if inputs is None else {MODEL_INPUT: inputs}
    for stage, rank in enumerate(ranks):
        exports = graph.exports(stage)
        numbers: list[int] = []
        if stage in modules:
            found = export_specs(
                modules[stage], {layer: specs[layer] for layer in graph.imports(stage)}, device, mode
            )
            numbers = [number for layer in exports for number in _encode(found[layer])]
        numbers = _broadcast(numbers, rank, group, device)
        for layer in exports:
            specs[layer] = _decode(numbers)
    return specs


def export_specs(
    module: StageModule, imports: LayerSpecs, device: torch.device, mode: ForwardMode | None = None
) -> LayerSpecs:
    """Return the specs of what a stage exports, from a run on the meta device or else from a real one."""
    chosen = mode or ForwardMode()
    try:
        # Autocast of a real device does not apply to the meta device, which would get the dtypes wrong.
        is_meta_right = chosen.autocast is None and not torch.is_autocast_enabled(device.type)
        # Parameters cut up by fully_shard are gathered by a real forward alone.
        is_meta_right = is_meta_right and not is_sharded(module)
        outputs = _run_on_meta(module, imports) if is_meta_right else None
    except Exception:
        # Whatever the meta device cannot do; what is truly wrong with the layer is raised by the real run.
        outputs = None
    if outputs is None:
        with chosen.precision(device):
            outputs = _run_for_real(module, imports, device)
    return {layer: tuple(TensorSpec.of(value) for value in values) for layer, values in outputs.items()}


def _run_on_meta(module: StageModule, imports: LayerSpecs) -> dict[int, Values]:
    meta = torch.device("meta")
    received = {layer: tuple(spec.empty(meta) for spec in specs) for layer, specs in imports.items()}
    state = {name: value.to(meta) for name, value in (*module.named_parameters(), *module.named_buffers())}
    with torch.no_grad(), meta:
        outputs: dict[int, Values] = torch.func.functional_call(module, state, (received,))
    return outputs


def _run_for_real(module: StageModule, imports: LayerSpecs, device: torch.device) -> dict[int, Values]:
    """Run once on zeros; buffers (running means) and the random state are put back."""
    received = {
        layer: tuple(spec.empty(device).zero_() for spec in specs) for layer, specs in imports.items()
    }
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.no_grad(), torch.random.fork_rng():
        outputs: dict[int, Values] = module(received)
        for buffer, before in buffers:
            buffer.copy_(before)
    return outputs


def _broadcast(
    numbers: list[int], rank: int, group: dist.ProcessGroup | None, device: torch.device
) -> list[int]:
    """Send a list of integers of any length from one rank to all."""
    length = torch.tensor([len(numbers)], device=device)
    dist.broadcast(length, group=group, group_src=rank)
    body = torch.tensor(numbers, dtype=torch.int64, device=device)
    if len(numbers) != int(length):
        body = torch.empty(int(length), dtype=torch.int64, device=device)
    dist.broadcast(body, group=group, group_src=rank)
    return [int(number) for number in body.tolist()]


def _encode(specs: Sequence[TensorSpec]) -> list[int]:
    """Write: number of tensors, then for each its dtype, number of dimensions, and dimensions."""
    numbers = [len(specs)]
    for spec in specs:
        numbers += [_DTYPES.index(spec.dtype), len(spec.shape), *spec.shape]
    return numbers


def _decode(numbers: list[int]) -> tuple[TensorSpec, ...]:
    """Read one layer's specs from the front of the list and remove them."""
    specs = []
    count, position = numbers[0], 1
    for _ in range(count):
        dtype, num_dimensions = numbers[position : position + 2]
        shape = tuple(numbers[position + 2 : position + 2 + num_dimensions])
        specs.append(TensorSpec(shape, _DTYPES[dtype]))
        position += 2 + num_dimensions
    del numbers[:position]
    return tuple(specs)
