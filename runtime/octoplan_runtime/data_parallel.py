"""Data parallelism around a pipeline: average gradients over replicas, once a step, after `PipelineExecutor.step`.

The hooks by which `DistributedDataParallel` does this belong to a forward of the whole module and fire in every
microbatch; a pipeline runs many forwards before the first backward and, with a split backward, fills ``.grad`` without
them. One call between the step and the optimizer moves the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

_BUCKET_BYTES = 32 << 20


def average_gradients(parameters: Iterable[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Replace each gradient by its mean over the replicas.

    Parameters
    ----------
    parameters:
        Of one rank of the pipeline, ``executor.parameters()``; the same on every replica. A missing gradient counts
        as zero.
    group:
        The ranks that hold replicas of these parameters, such as ``mesh.get_group("data")`` of a `DeviceMesh`.
    """
    size = dist.get_world_size(group)
    for bucket in _buckets(parameter for parameter in parameters if parameter.requires_grad):
        gradients = [_gradient(parameter) for parameter in bucket]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=group)
        flat /= size
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Put neighbours of one type together, up to a size that a network moves at full speed."""
    buckets: list[list[nn.Parameter]] = []
    room = 0
    for parameter in parameters:
        fits = buckets and buckets[-1][0].dtype == parameter.dtype and room >= parameter.nbytes
        if not fits:
            buckets.append([])
            room = _BUCKET_BYTES
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets
