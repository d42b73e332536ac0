"""`find_optimum`: what is searched, and what is proved.

Searched is every cut of the layers into stages and every rank for each stage, neighbours on one rank included, where
every rank holds at least one stage and none more than allowed; and every order of compute ops and of transfers. A fused
job has B ops only; a split job chooses between B and I with W for every stage and microbatch.

Proved is `Optimum.lower_s`, which leaves received tensors (and memory during ops of no length) out of account.
`Optimum.makespan_s` is that of a plan which fits by every byte. They are equal unless received tensors decide; then the
plan is the best of those that run microbatches in order, or the best met before the search gave up. Tied layers count
once each, as if they were not tied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from octoplan_schemas import Cluster, Constraint, ModelGraph, Plan
from tests.exhaustive.arrays import FUSED, MIXED, SPLIT, build_job
from tests.exhaustive.assignments import list_assignments, table
from tests.exhaustive.orders import search_all
from tests.exhaustive.replay import Replay
from tests.exhaustive.seen import Seen, new_table

#: Nodes of the search for `Optimum.lower_s`, and for a plan that fits by every byte; a million take about 2 s.
MAX_NODES = 20_000_000
MAX_NODES_BY_THE_BYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best plan; times in seconds of makespan.

    ``lower_s``: no plan is shorter. ``makespan_s`` and ``plan``: a plan that fits, None if none was found.
    """

    lower_s: float
    makespan_s: float | None
    plan: Plan | None
    num_assignments: int
    num_nodes: int

    @property
    def is_exact(self) -> bool:
        """Whether the plan is proved optimal."""
        return self.makespan_s is not None and self.makespan_s <= self.lower_s * (1 + 1e-9)


def optimum(
    model: ModelGraph,
    cluster: Cluster,
    *,
    num_microbatches: int,
    backward: Literal["split", "fused"] = "split",
    max_stages_per_device: int = 1,
    memory_limit_bytes: Sequence[float] | None = None,
    constraints: Sequence[Constraint] = (),
) -> float | None:
    """Return the optimal makespan in seconds, None if no plan fits; see `find_optimum`."""
    found = find_optimum(
        model,
        cluster,
        num_microbatches=num_microbatches,
        backward=backward,
        max_stages_per_device=max_stages_per_device,
        memory_limit_bytes=memory_limit_bytes,
        constraints=constraints,
    )
    return None if found is None else found.makespan_s


def find_optimum(
    model: ModelGraph,
    cluster: Cluster,
    *,
    num_microbatches: int,
    backward: Literal["split", "fused"] = "split",
    max_stages_per_device: int = 1,
    memory_limit_bytes: Sequence[float] | None = None,
    dynamic_limit_bytes: float = math.inf,
    constraints: Sequence[Constraint] = (),
    allow_mixed: bool = True,
) -> Optimum | None:
    """Search everything.

    Parameters
    ----------
    memory_limit_bytes:
        Limit of each rank's whole peak; None: no limit.
    dynamic_limit_bytes:
        Limit of any rank's peak without its state.
    constraints:
        Of the contract's section 7, all but ``max_in_flight``.
    allow_mixed:
        False: a split job has no B.

    Returns
    -------
    Optimum or None
        None if no plan fits.

    Raises
    ------
    RuntimeError
        If the problem is too large.
    """
    limits = [math.inf] * cluster.num_ranks if memory_limit_bytes is None else list(memory_limit_bytes)
    mode = FUSED if backward == "fused" else MIXED if allow_mixed else SPLIT
    job = build_job(model, cluster, num_microbatches, limits, dynamic_limit_bytes, mode)
    rows = list_assignments(model, job, max_stages_per_device, constraints)
    if not rows:
        return None
    lower, row, path, nodes, covered = search_all(job, *table(rows), _seen(), False, 0.0, MAX_NODES)
    if not covered:
        raise RuntimeError(f"{nodes} nodes do not cover every order: take a smaller problem")
    if row < 0:
        return None
    replay = Replay(job, rows[row], path)
    if not replay.fits:
        _, row, path, more, _ = search_all(job, *table(rows), _seen(), True, lower, MAX_NODES_BY_THE_BYTE)
        nodes += more
        if row < 0:
            return Optimum(lower, None, None, len(rows), nodes)
        replay = Replay(job, rows[row], path)
        assert replay.fits
    plan = replay.plan(model, cluster, max_stages_per_device)
    return Optimum(lower, replay.makespan_s, plan, len(rows), nodes)


@cache
def _seen() -> Seen:
    """One table for all searches: most of its pages are never touched."""
    return new_table()
