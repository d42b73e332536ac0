"""`Policy`: the priorities of list scheduling as data, so that a search can move through them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, FloatArray, IntArray
from octoplan_solvers.staged import StagedProblem

#: Columns of `Policy.bias`: F, then I or B, then W.
NUM_CLASSES = 3
#: A bias of W (and a bonus under memory pressure) that outweighs any number of microbatches.
FILL_BUBBLES_ONLY = 1e6


@dataclass(frozen=True)
class Policy:
    """How an idle rank chooses among the ops that it may start: the smallest key runs.

    The key of microbatch m's op of class c on stage s is ``m + bias[s, c]``, in units of microbatches, less the
    bonuses below. Waiting is allowed only for inputs whose arrival is known.
    """

    #: ``(S, 3)`` added to the microbatch number.
    bias: FloatArray
    #: ``(S,)`` microbatches that may be between F and the end of the backward on a stage.
    max_in_flight: IntArray
    #: ``(S,)`` whether a stage's backward is one B even in a split job. Where I's stash does not fit, it is anyway.
    fuse: npt.NDArray[np.bool_]
    #: Bonus of a backward after a forward on the same rank, and of a forward after a backward.
    alternate: float = 0.0
    #: Bonus of W while a forward on the rank waits for memory.
    memory_bonus: float = 0.0
    #: Wait for a better op that arrives within this share of the chosen op's time, by class.
    patience: tuple[float, float, float] = (0.0, 0.0, 0.5)

    def with_bias(self, bias: FloatArray) -> Policy:
        """Return the same policy with other biases."""
        return replace(self, bias=bias)


def remaining_path(staged: StagedProblem) -> FloatArray:
    """Return ``(S, 3)`` seconds from the start of F, of I or B, of W to the end of its microbatch alone.

    W's own path is its duration; the paths of F and I follow the chain of stages with its transfers.
    """
    num_stages = staged.num_stages
    input_kind = BACKWARD_INPUT if staged.split_backward else BACKWARD
    path = np.zeros((num_stages, NUM_CLASSES))
    path[:, 2] = staged.duration_s[:, BACKWARD_WEIGHT]
    chain = staged.edge_destination - staged.edge_source == 1
    delay = np.zeros((num_stages, 2))
    delay[staged.edge_source[chain]] = (staged.transfer_s + staged.latency_s)[chain]
    for stage in range(num_stages):
        after = path[stage - 1, 1] + delay[stage - 1, 1] if stage else 0.0
        path[stage, 1] = staged.duration_s[stage, input_kind] + after
    for stage in range(num_stages - 1, -1, -1):
        after = path[stage + 1, 0] + delay[stage, 0] if stage + 1 < num_stages else path[stage, 1]
        path[stage, 0] = staged.duration_s[stage, FORWARD] + after
    return path


def microbatch_period(staged: StagedProblem) -> float:
    """Return the seconds per microbatch of the busiest rank: no steady state can be faster."""
    kinds = (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT) if staged.split_backward else (FORWARD, BACKWARD)
    work = np.zeros(staged.num_ranks)
    np.add.at(work, staged.stage_rank, staged.duration_s[:, kinds].sum(axis=1))
    return max(float(work.max()), 1e-300)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A policy in a few numbers, for any number of stages: prefer what has the longest path left.

    Attributes
    ----------
    urgency:
        Weight of the remaining path, measured in microbatches of the busiest rank: 1 is the longest path rule, 0
        goes by microbatch number alone, a negative one prefers what is nearly done.
    backward_first:
        Microbatches by which a backward is preferred to a forward.
    weight_delay:
        Microbatches by which W stands back; a large one lets W fill bubbles only.
    alternate, memory_bonus:
        As in `Policy`.
    wait:
        Patience before a W, as a share of its time.
    """

    urgency: float = 1.0
    backward_first: float = 0.0
    weight_delay: float = FILL_BUBBLES_ONLY
    alternate: float = 0.0
    memory_bonus: float = 0.0
    wait: float = 0.3

    def on(self, staged: StagedProblem) -> Policy:
        """Return the policy of this rule for the stages of a problem."""
        bias = -self.urgency * remaining_path(staged) / microbatch_period(staged)
        bias[:, 1] -= self.backward_first
        bias[:, 2] = self.weight_delay
        return Policy(
            bias=bias,
            max_in_flight=np.full(staged.num_stages, staged.num_microbatches, dtype=np.int64),
            fuse=np.zeros(staged.num_stages, dtype=np.bool_),
            alternate=self.alternate,
            memory_bonus=self.memory_bonus,
            patience=(0.0, 0.0, self.wait),
        )
