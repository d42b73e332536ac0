"""Dense feed-forward: up projection, non-linearity (gated or not), down projection."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import activation, residual_sum, rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.workload import Workload


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Norm, products and residual sum; ``gated`` doubles the up projection, ``post_norm`` adds a norm."""

    hidden_size: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False
    post_norm: bool = False

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        hidden = self.hidden_size
        return (
            rms_norm("input_norm", workload, hidden),
            *feed_forward_products(
                workload, hidden, self.intermediate_size, gated=self.gated, bias=self.bias
            ),
            *([rms_norm("post_norm", workload, hidden)] if self.post_norm else []),
            residual_sum(workload, hidden),
        )


def feed_forward_products(
    workload: Workload,
    hidden_size: int,
    intermediate_size: int,
    *,
    gated: bool,
    bias: bool = False,
    saves_input: bool = True,
    prefix: str = "",
) -> tuple[Operator, ...]:
    """Return up projection, non-linearity and down projection, without norm and residual."""
    width = workload.share(intermediate_size, "intermediate size")
    return (
        linear(
            f"{prefix}up",
            workload,
            hidden_size,
            width * (2 if gated else 1),
            bias=bias,
            shard="column",
            saves_input=saves_input,
        ),
        activation(f"{prefix}activation", workload, width, gated=gated),
        linear(f"{prefix}down", workload, width, hidden_size, bias=bias, shard="row"),
    )
