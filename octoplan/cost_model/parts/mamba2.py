"""Mamba-2 mixer (Dao and Gu, 2024) as Nemotron-H has it: gated norm, one group of B and C for many heads."""

from __future__ import annotations

from dataclasses import dataclass

from octoplan.cost_model.elementwise import residual_sum, rms_norm
from octoplan.cost_model.operator import Operator
from octoplan.cost_model.products import linear
from octoplan.cost_model.sequence import causal_convolution, chunked_scan
from octoplan.cost_model.workload import Workload


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Norm, input projection, convolution, scan, gated norm, output projection and residual sum.

    Parameters
    ----------
    heads, head_dim:
        Their product is the inner width.
    groups, state_size:
        Number of (B, C) groups and size of the state of one channel.
    kernel, chunk_size:
        Width of the convolution, tokens per chunk of the scan.
    bias, conv_bias:
        The projections, or the convolution, have biases.
    """

    hidden_size: int
    heads: int
    head_dim: int
    groups: int
    state_size: int
    kernel: int = 4
    chunk_size: int = 256
    bias: bool = False
    conv_bias: bool = True

    def operators(self, workload: Workload) -> tuple[Operator, ...]:
        """Return the operators in forward order."""
        hidden = self.hidden_size
        heads = workload.share(self.heads, "mamba_num_heads")
        groups = workload.share_or_copy(self.groups, "n_groups")
        inner, channels = heads * self.head_dim, heads * self.head_dim + 2 * groups * self.state_size
        return (
            rms_norm("input_norm", workload, hidden),
            linear("input", workload, hidden, inner + channels + heads, bias=self.bias, shard="column"),
            causal_convolution(workload, channels, self.kernel, bias=self.conv_bias),
            chunked_scan(
                workload,
                heads=heads,
                head_dim=self.head_dim,
                groups=groups,
                state_size=self.state_size,
                chunk_size=self.chunk_size,
            ),
            rms_norm("gated_norm", workload, inner, gate=True),
            linear("output", workload, inner, hidden, bias=self.bias, shard="row"),
            residual_sum(workload, hidden),
        )
