"""What the kernels of the sequence search read: one partition and placement as flat arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from octoplan_solvers.list_scheduling.scheduler import MEMORY_TOLERANCE
from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, FloatArray, IntArray
from octoplan_solvers.order_search.window import fusing_can_help
from octoplan_solvers.staged import StagedProblem

BoolArray = npt.NDArray[np.bool_]
Records = npt.NDArray[np.void]
#: Share of the longest possible makespan within which two instants count as one.
_TINY = 1e-12


#: A stage: its rank; whether I and W, and whether B, are to be considered; bytes; least seconds of a backward with
#: its W.
_STAGE = np.dtype(
    [
        ("rank", np.int64),
        ("may_split", np.bool_),
        ("may_fuse", np.bool_),
        ("activation", np.float64),
        ("freed", np.float64),
        ("stash", np.float64),
        ("workspace", np.float64),
        ("whole_backward", np.float64),
    ],
    align=True,
)
#: A rank: its first stage; bytes besides the state, infinite where even everything at once fits; microbatches in
#: flight.
_RANK = np.dtype([("first_stage", np.int64), ("room", np.float64), ("in_flight", np.int64)])
#: A directed edge: the steps that make and use what it carries; its pair, -1 if it stays on a rank; whether it crosses
#: ranks; whether the time to send is a decision (else a message leaves when it is made); bytes; seconds that a message
#: keeps its pair busy, until it arrives from then, and both; least seconds of what follows once it has left its pair.
_EDGE = np.dtype(
    [
        ("maker", np.int64),
        ("user", np.int64),
        ("pair", np.int64),
        ("crosses", np.bool_),
        ("is_decision", np.bool_),
        ("size", np.float64),
        ("busy", np.float64),
        ("latency", np.float64),
        ("delay", np.float64),
        ("after_message", np.float64),
    ],
    align=True,
)
#: A step: its least seconds, those of all that follows its end, and of both.
_STEP = np.dtype([("length", np.float64), ("after", np.float64), ("path", np.float64)])


class Arrays(NamedTuple):
    """``S`` stages, ``R`` ranks, ``M`` microbatches, ``P`` directed rank pairs, ``D`` directed edges.

    F of stage s is *step* s, its backward (B, or I with a W to follow) step S + s. Directed edge 2 e carries the
    activation of edge e, 2 e + 1 its gradient; a *message* is ``directed edge * M + microbatch``, as everywhere.
    """

    num_microbatches: int
    num_pairs: int
    #: Seconds within which two instants count as one.
    tiny: float
    #: Whether every byte at every instant counts; else what depends on the orders of ops alone does.
    strict: bool
    #: Records of `_STAGE`, `_RANK`, `_EDGE` and `_STEP`.
    stages: Any
    ranks: Any
    edges: Any
    steps: Any
    #: ``(S, 4)`` seconds of F, I, W, B.
    duration: FloatArray
    #: Directed edges that lead to, and from, every step (CSR).
    in_begin: IntArray
    in_edges: IntArray
    out_begin: IntArray
    out_edges: IntArray
    #: Steps and directed edges, longest remaining path first.
    steps_by_path: IntArray
    edges_by_path: IntArray


def build_arrays(staged: StagedProblem, *, strict: bool) -> Arrays:
    """Lay out a problem; ``strict``: received tensors count, so that the time of every send matters."""
    num_stages = staged.num_stages
    stages, edges = _stages(staged, strict), _edges(staged, strict)
    steps = _steps(staged, stages, edges)
    edges["after_message"] = edges["latency"] + steps["path"][edges["user"]]
    in_begin, in_edges = _by_step(edges["user"], num_stages)
    out_begin, out_edges = _by_step(edges["maker"], num_stages)
    longest_s = staged.num_microbatches * float(staged.duration_s.sum() + edges["delay"].sum())
    return Arrays(
        num_microbatches=staged.num_microbatches,
        num_pairs=len(staged.pairs),
        tiny=_TINY * longest_s,
        strict=strict,
        stages=stages,
        ranks=_ranks(staged, strict),
        edges=edges,
        steps=steps,
        duration=staged.duration_s,
        in_begin=in_begin,
        in_edges=in_edges,
        out_begin=out_begin,
        out_edges=out_edges,
        steps_by_path=np.argsort(-steps["after"], kind="stable"),
        edges_by_path=np.argsort(-edges["after_message"], kind="stable"),
    )


def _stages(staged: StagedProblem, strict: bool) -> Records:
    stages = np.zeros(staged.num_stages, _STAGE)
    stages["rank"] = staged.stage_rank
    stages["may_split"] = staged.split_backward
    stages["may_fuse"] = fusing_can_help(staged, waits=not strict) if staged.split_backward else True
    stages["activation"] = staged.activation_bytes
    stages["freed"] = staged.freed_at_input_bytes
    stages["stash"] = staged.stash_bytes
    stages["workspace"] = staged.workspace_bytes
    apart, weight, together = staged.duration_s[:, [BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD]].T
    stages["whole_backward"] = _least(stages, apart + weight, together)
    return stages


def _least(stages: Records, split: FloatArray, fused: FloatArray) -> FloatArray:
    """Return the lesser of what I (and W) and what B take, of those that are to be considered."""
    return np.minimum(
        np.where(stages["may_split"], split, np.inf), np.where(stages["may_fuse"], fused, np.inf)
    )


def _ranks(staged: StagedProblem, strict: bool) -> Records:
    ranks = np.zeros(staged.num_ranks, _RANK)
    ranks["first_stage"] = staged.num_stages
    np.minimum.at(ranks["first_stage"], staged.stage_rank, np.arange(staged.num_stages))
    ranks["room"] = _room(staged, strict)
    ranks["in_flight"] = staged.num_microbatches if staged.max_in_flight is None else staged.max_in_flight
    return ranks


def _edges(staged: StagedProblem, strict: bool) -> Records:
    edges = np.zeros(2 * len(staged.edge_source), _EDGE)
    backward = staged.num_stages
    edges["maker"] = np.stack([staged.edge_source, backward + staged.edge_destination], axis=1).reshape(-1)
    edges["user"] = np.stack([staged.edge_destination, backward + staged.edge_source], axis=1).reshape(-1)
    edges["pair"] = staged.edge_pair.reshape(-1)
    edges["crosses"] = np.repeat(staged.edge_crosses, 2)
    edges["is_decision"] = _decisions(staged, strict)
    edges["size"] = np.repeat(staged.edge_bytes, 2)
    edges["busy"], edges["latency"] = staged.transfer_s.reshape(-1), staged.latency_s.reshape(-1)
    edges["delay"] = edges["busy"] + edges["latency"]
    return edges


def _steps(staged: StagedProblem, stages: Records, edges: Records) -> Records:
    """Measure least remaining paths, from late steps to early ones."""
    num_stages = staged.num_stages
    forward, apart, weight, together = staged.duration_s[
        :, [FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD]
    ].T
    steps = np.zeros(2 * num_stages, _STEP)
    steps["length"] = np.concatenate([forward, _least(stages, apart, together)])
    for step in [*range(num_stages, 2 * num_stages), *range(num_stages - 1, -1, -1)]:
        stage = step % num_stages
        after = steps["path"][num_stages + stage] if step < num_stages else 0.0
        for edge in np.flatnonzero(edges["maker"] == step):
            after = max(after, edges["delay"][edge] + steps["path"][edges["user"][edge]])
        steps["after"][step] = after
        steps["path"][step] = steps["length"][step] + after
        if step >= num_stages:
            split = apart[stage] + max(weight[stage], after) if stages["may_split"][stage] else np.inf
            fused = together[stage] + after if stages["may_fuse"][stage] else np.inf
            steps["path"][step] = min(split, fused)
    return steps


def _by_step(steps: IntArray, num_stages: int) -> tuple[IntArray, IntArray]:
    edges = np.argsort(steps, kind="stable").astype(np.int64)
    return np.searchsorted(steps[edges], np.arange(2 * num_stages + 1)).astype(np.int64), edges


def _room(staged: StagedProblem, strict: bool) -> FloatArray:
    """Return ``(R,)`` bytes besides the state, infinite where nothing can exceed them."""
    limit = staged.memory_limit_bytes
    room = np.where(np.isfinite(limit), limit * (1 + 2 * MEMORY_TOLERANCE) - staged.state_bytes, np.inf)
    most, workspace = np.zeros(staged.num_ranks), np.zeros(staged.num_ranks)
    np.add.at(most, staged.stage_rank, staged.activation_bytes + staged.stash_bytes)
    np.maximum.at(workspace, staged.stage_rank, staged.workspace_bytes)
    if strict:
        received = staged.edge_bytes * staged.edge_crosses
        np.add.at(most, staged.stage_rank[staged.edge_source], received)
        np.add.at(most, staged.stage_rank[staged.edge_destination], received)
    return np.where(staged.num_microbatches * most + workspace <= room, np.inf, room)


def _decisions(staged: StagedProblem, strict: bool) -> BoolArray:
    """Return ``(D,)``: whether messages wait for their turn to be decided.

    A late send makes a tensor arrive later, which matters where bytes do. Otherwise only edges that compete for a pair
    have something to decide.
    """
    pair, busy = staged.edge_pair.reshape(-1), staged.transfer_s.reshape(-1)
    decisions = np.zeros(len(pair), np.bool_)
    for index in range(len(staged.pairs)):
        own = pair == index
        several_edges = own.sum() > 1 and busy[own].any()
        decisions[own] = own.sum() * staged.num_microbatches > 1 if strict else several_edges
    return decisions
