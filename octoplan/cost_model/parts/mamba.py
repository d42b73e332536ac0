"""Mamba-1 mixer (Gu and Dao, 2023) as Jamba has it: norms on time step, B and C."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import residual_sum, rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.sequence import causal_convolution, selective_scan
from octoplan.cost_model.workload import Workload


@dataclass(frozen=True, slots=True)
class Mamba:
    """Norm, projections, convolution, selective scan, output projection and residual sum.

    Parameters
    ----------
    inner:
        Width inside the mixer.
    state_size, time_rank:
        Size of the state of one channel, rank of the time-step projection.
    kernel:
        Width of the convolution.
    """

    hidden_size: int
    inner: int
    state_size: int
    time_rank: int
    kernel: int = 4
    bias: bool = False
    conv_bias: bool = True

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        hidden, selection = self.hidden_size, self.time_rank + 2 * self.state_size
        inner = workload.share(self.inner, "mamba inner size")
        return (
            rms_norm("input_norm", workload, hidden),
            linear("input", workload, hidden, 2 * inner, bias=self.bias, shard="column"),
            causal_convolution(workload, inner, self.kernel, bias=self.conv_bias),
            linear("selection", workload, inner, selection, shard="row"),
            rms_norm("selection_norm", workload, selection),
            linear("time_step", workload, self.time_rank, inner, bias=True, shard="column"),
            selective_scan(workload, inner=inner, state_size=self.state_size),
            linear("output", workload, inner, hidden, bias=self.bias, shard="row"),
            residual_sum(workload, hidden),
        )
