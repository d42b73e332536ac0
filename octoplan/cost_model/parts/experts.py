"""Mixture of experts: a router, ``top_k`` of many experts for each token, and optional shared experts.

Flops count the experts that work (``top_k`` a token, perfectly balanced), parameters count all of them.
Every rank of a tensor-parallel group holds a slice of each expert.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from octoplan.cost_model.elementwise import activation, copy, residual_sum, rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.parts.feed_forward import feed_forward_products
from octoplan.cost_model.products import grouped_linear, linear
from octoplan.cost_model.workload import BF16_BYTES, FP32_BYTES, Workload


@dataclass(frozen=True, slots=True)
class Experts:
    """Norm, router, experts and residual sum.

    Parameters
    ----------
    expert_size:
        Intermediate size of one routed expert.
    num_experts, top_k:
        Routed experts, and how many of them each token visits.
    shared_size:
        Intermediate size of the experts that every token visits, together; 0: none.
    latent_size:
        Width that tokens are projected to before the routed experts; None: the hidden size itself.
    """

    hidden_size: int
    expert_size: int
    num_experts: int
    top_k: int
    shared_size: int = 0
    gated: bool = True
    bias: bool = False
    latent_size: int | None = None

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        hidden, width = self.hidden_size, self.latent_size or self.hidden_size
        latent, back = self._latent_projections(workload)
        return (
            rms_norm("input_norm", workload, hidden),
            linear("router", workload, hidden, self.num_experts),
            _routing(workload, self.num_experts, self.top_k),
            *latent,
            _dispatch(workload, width, self.top_k),
            *self._expert_products(workload, width),
            _combine(workload, width, self.top_k),
            *back,
            *self._shared_products(workload),
            residual_sum(workload, hidden),
        )

    def _expert_products(self, workload: Workload, width: int) -> tuple[Operator, ...]:
        size = workload.share(self.expert_size, "expert intermediate size")
        rows, experts = workload.tokens * self.top_k, self.num_experts
        up = size * (2 if self.gated else 1)
        return (
            grouped_linear("experts_up", workload, width, up, experts=experts, tokens=rows),
            activation("experts_activation", workload, size, gated=self.gated, tokens=rows),
            grouped_linear("experts_down", workload, size, width, experts=experts, tokens=rows),
        )

    def _shared_products(self, workload: Workload) -> tuple[Operator, ...]:
        if not self.shared_size:
            return ()
        # The router has counted the input.
        return feed_forward_products(
            workload,
            self.hidden_size,
            self.shared_size,
            gated=self.gated,
            bias=self.bias,
            saves_input=False,
            prefix="shared_",
        )

    def _latent_projections(self, workload: Workload) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
        if self.latent_size is None:
            return (), ()
        hidden, latent = self.hidden_size, self.latent_size
        return (
            (linear("latent_down", workload, hidden, latent, bias=self.bias, saves_input=False),),
            (linear("latent_up", workload, latent, hidden, bias=self.bias),),
        )


def _routing(workload: Workload, num_experts: int, top_k: int) -> Operator:
    scores = FP32_BYTES * workload.tokens * num_experts
    weights = FP32_BYTES * workload.tokens * top_k
    return copy("routing", scores, weights, saved=scores + weights)


def _dispatch(workload: Workload, width: int, top_k: int) -> Operator:
    """Copy every token to its experts; the copies are saved by the experts' first product."""
    values = BF16_BYTES * workload.tokens * width
    operator = copy("dispatch", values, values * top_k)
    return _with_all_reduce(operator, workload, backward=values)


def _combine(workload: Workload, width: int, top_k: int) -> Operator:
    """Sum what the experts return, weighted; the gradient of the weights needs every returned copy."""
    values = BF16_BYTES * workload.tokens * width
    operator = copy("combine", values * top_k, values, saved=values * top_k)
    return _with_all_reduce(operator, workload, forward=values)


def _with_all_reduce(
    operator: Operator, workload: Workload, *, forward: int = 0, backward: int = 0
) -> Operator:
    if workload.tensor_parallel == 1:
        return operator
    return replace(operator, forward_all_reduce_bytes=forward, backward_all_reduce_bytes=backward)
