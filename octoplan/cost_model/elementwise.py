"""Operators bound by memory: norms, activations, residual sums, routing copies, rotary embeddings."""

from __future__ import annotations

from octoplan.cost_model.operator import Operator, Work
from octoplan.cost_model.workload import BF16_BYTES, FP32_BYTES, Workload


def rms_norm(
    name: str, workload: Workload, width: int, *, parameters: int | None = None, gate: bool = False
) -> Operator:
    """Return an RMSNorm over ``width`` values a token.

    Parameters
    ----------
    parameters:
        Where it is not ``width`` (one scale shared by all heads).
    gate:
        The input is multiplied by the activation of a second tensor of the same width first (Mamba-2).
    """
    values = BF16_BYTES * workload.tokens * width
    inputs = 2 if gate else 1
    return Operator(
        name,
        parameters=width if parameters is None else parameters,
        forward=Work(bytes=(inputs + 1) * values),
        backward_input=Work(bytes=(2 * inputs + 1) * values),
        backward_weight=Work(bytes=(inputs + 1) * values),
        saved_bytes=inputs * values + FP32_BYTES * workload.tokens,
        stash_bytes=values,
        workspace_bytes=(inputs + 1) * values,
    )


def activation(
    name: str, workload: Workload, width: int, *, gated: bool, tokens: int | None = None
) -> Operator:
    """Return a non-linearity with ``width`` outputs a token; gated: twice as many inputs (SwiGLU)."""
    rows = workload.tokens if tokens is None else tokens
    y = BF16_BYTES * rows * width
    x = 2 * y if gated else y
    return Operator(
        name,
        forward=Work(bytes=x + y),
        backward_input=Work(bytes=2 * x + y),
        saved_bytes=x,
        workspace_bytes=x + y,
    )


def residual_sum(workload: Workload, width: int) -> Operator:
    """Return the sum with the residual stream; its backward adds the two gradients up."""
    values = BF16_BYTES * workload.tokens * width
    return Operator(
        "residual_sum",
        forward=Work(bytes=3 * values),
        backward_input=Work(bytes=3 * values),
        workspace_bytes=values,
    )


def copy(name: str, read: int, written: int, *, saved: int = 0) -> Operator:
    """Return an operator that reads and writes these bytes, and as many the other way round in I."""
    return Operator(
        name,
        forward=Work(bytes=read + written),
        backward_input=Work(bytes=read + written),
        saved_bytes=saved,
        workspace_bytes=read + written,
    )
