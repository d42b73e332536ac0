"""The bank: problems that every solver of partition and placement runs, with what is known about each.

``feasible`` and ``conflict`` were found by reasoning, not by a solver; objective values come from brute force.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from octoplan_solvers.constraints import PlacementConstraints, StagesPerRank
from octoplan_solvers.problem import PipelineProblem
from tests.solvers.placement.problems import make_problem, node_links

RAMP = (0.2, 0.5, 0.3, 0.7, 0.4, 0.6)
HEAVY_END = (0.1, 0.3, 0.3, 0.3, 0.3, 0.9)
EQUAL = (0.5,) * 6
#: A second device type that is slower, and not by the same factor everywhere.
SLOWER = (0.4, 0.6, 0.6, 0.9, 1.0, 1.1)


@dataclass(frozen=True)
class Case:
    """A problem and what is known about it."""

    name: str
    problem: PipelineProblem
    #: One word that must occur in the explanation, if the problem is infeasible.
    conflict: str | None = None

    @property
    def feasible(self) -> bool:
        """Whether the problem has a solution."""
        return self.conflict is None


def _asked(problem: PipelineProblem, **constraints: object) -> PipelineProblem:
    return replace(problem, constraints=PlacementConstraints(**constraints))  # type: ignore[arg-type]


def _plain() -> list[Case]:
    return [
        Case("one-rank", make_problem(RAMP, 1)),
        Case("one-rank-two-stages", make_problem(RAMP, 1, max_stages=2, overhead_s=0.1)),
        Case("two-ranks", make_problem(RAMP, 2)),
        Case("two-ranks-fused", make_problem(RAMP, 2, split=False)),
        Case("two-ranks-interleaved", make_problem(RAMP, 2, max_stages=2)),
        Case("three-ranks-interleaved", make_problem(HEAVY_END, 3, max_stages=2)),
        Case("three-ranks-fused-interleaved", make_problem(HEAVY_END, 3, max_stages=2, split=False)),
        Case("as-many-ranks-as-layers", make_problem(RAMP[:3], 3)),
        Case("one-microbatch", make_problem(HEAVY_END, 2, microbatches=1)),
        Case("one-microbatch-fused", make_problem(HEAVY_END, 2, microbatches=1, split=False, max_stages=2)),
        Case("many-microbatches", make_problem(HEAVY_END, 2, microbatches=100, max_stages=3)),
        Case("all-equal", make_problem(EQUAL, 3, max_stages=2)),
        Case("all-equal-fused", make_problem(EQUAL, 2, split=False, max_stages=3)),
        Case("free-layers", make_problem((0.0, 0.5, 0.0, 0.5, 0.0), 2, max_stages=2)),
        Case("very-short", make_problem(np.array(RAMP) * 1e-5, 2, max_stages=2)),
        Case("too-many-ranks", make_problem(RAMP[:2], 3), conflict="a stage on every rank"),
    ]


def _devices() -> list[Case]:
    types = (RAMP, SLOWER)
    return [
        Case("two-types", make_problem(types, 2, rank_type=(0, 1))),
        Case("two-types-interleaved", make_problem(types, 2, rank_type=(1, 0), max_stages=2)),
        Case("two-types-fused", make_problem(types, 3, rank_type=(0, 1, 1), split=False, max_stages=2)),
        Case("two-and-one", make_problem(types, 3, rank_type=(1, 0, 0), max_stages=2)),
        Case("each-best-at-something", make_problem((RAMP, RAMP[::-1]), 2, rank_type=(0, 1), max_stages=3)),
        Case("uneven-overheads", make_problem(RAMP, 2, overhead_s=(0.01, 0.2), max_stages=2)),
    ]


def _transfers() -> list[Case]:
    size = (4.0, 1.0, 3.0, 8.0, 1.0, 2.0)
    nodes = make_problem(
        RAMP, 4, output=size, latency_s=node_links(2, 2, 0.01, 0.2), bandwidth=node_links(2, 2, 50.0, 10.0)
    )
    return [
        Case("latency", make_problem(RAMP, 2, latency_s=0.1, max_stages=2)),
        Case("bandwidth", make_problem(RAMP, 3, output=size, bandwidth=20.0, max_stages=2)),
        Case(
            "slow-links-one-microbatch",
            make_problem(RAMP, 2, output=size, bandwidth=4.0, microbatches=1, max_stages=3),
        ),
        Case("overheads", make_problem(RAMP, 3, overhead_s=0.05, max_stages=2)),
        Case(
            "overheads-fused",
            make_problem(RAMP, 2, overhead_s=0.1, latency_s=0.05, max_stages=3, split=False),
        ),
        Case("two-nodes", nodes),
        Case(
            "one-sided-links", make_problem(RAMP, 2, latency_s=np.array([[0, 0.3], [0.1, 0]]), max_stages=2)
        ),
        Case(
            "everything",
            make_problem(
                (RAMP, SLOWER),
                3,
                rank_type=(0, 1, 0),
                overhead_s=(0.01, 0.02, 0.03),
                output=size,
                latency_s=0.02,
                bandwidth=40.0,
                skips=[(0, 4, 6.0)],
                state=2.0,
                activation=1.0,
                limit=9.5,
                max_stages=2,
                microbatches=3,
            ),
        ),
    ]


def _skips() -> list[Case]:
    skips = [(0, 5, 40.0), (1, 4, 10.0)]
    return [
        Case("skips-free", make_problem(RAMP, 2, skips=skips, max_stages=2)),
        Case("skips-slow", make_problem(RAMP, 2, skips=skips, bandwidth=10.0, microbatches=1, max_stages=2)),
        Case(
            "skips-fused",
            make_problem(
                RAMP, 3, skips=skips, bandwidth=10.0, latency_s=0.1, microbatches=2, max_stages=2, split=False
            ),
        ),
    ]


def _memory() -> list[Case]:
    state = (6.0, 1.0, 1.0, 1.0, 1.0, 6.0)
    return [
        Case("memory-loose", make_problem(RAMP, 2, state=state, activation=1.0, limit=30.0, max_stages=2)),
        Case("memory-tight", make_problem(RAMP, 2, state=state, activation=1.0, limit=11.0, max_stages=2)),
        Case("memory-exact", make_problem(EQUAL, 3, state=2.0, limit=4.0, max_stages=2)),
        Case(
            "memory-uneven",
            make_problem(RAMP, 2, state=state, activation=0.5, limit=(8.0, 12.0), max_stages=2),
        ),
        Case(
            "memory-ends-apart",
            make_problem(RAMP, 3, state=state, activation=0.0, limit=(7.0, 7.0, 3.0), max_stages=2),
        ),
        Case(
            "activations-tight",
            make_problem(RAMP, 2, activation=(3.0, 1.0, 1.0, 1.0, 1.0, 1.0), dynamic_limit_bytes=4.5),
        ),
        Case(
            "memory-too-small", make_problem(EQUAL, 3, state=2.0, limit=3.9), conflict="memory limit of rank"
        ),
        Case(
            "layer-too-large",
            make_problem(EQUAL, 2, state=(1, 1, 9, 1, 1, 1), limit=8.0, max_stages=2),
            conflict="memory limit of rank",
        ),
        Case(
            "activations-too-large",
            make_problem(EQUAL, 2, activation=1.0, dynamic_limit_bytes=2.5),
            conflict="activation limit of rank",
        ),
    ]


def _declared() -> list[Case]:
    two, three = make_problem(RAMP, 2, max_stages=3), make_problem(RAMP, 3, max_stages=2)
    costly = make_problem(RAMP, 2, max_stages=3, overhead_s=0.05, latency_s=0.05)
    fixed = StagesPerRank
    return [
        Case("pin-first", _asked(two, pins=((0, 1),))),
        Case("pin-both-ends", _asked(three, pins=((0, 2), (5, 2)))),
        Case("tied-ends", _asked(three, same_rank=((0, 5),))),
        Case("tied-three", _asked(two, same_rank=((0, 2, 5),))),
        Case("different-ranks", _asked(three, different_rank=((1, 3, 5),))),
        Case("same-stage", _asked(two, same_stage=((1, 4),))),
        Case("boundary", _asked(two, boundary_after=(3,))),
        Case("boundary-costs", _asked(costly, boundary_after=(0, 1, 2))),
        Case("at-least-two", _asked(costly, stages_per_rank=fixed(min=2))),
        Case("at-most-one", _asked(two, stages_per_rank=fixed(max=1))),
        Case("equal-counts", _asked(three, stages_per_rank=fixed(equal=True))),
        Case("exactly-three", _asked(costly, stages_per_rank=fixed(min=3, max=3, equal=True))),
        Case("in-flight-does-not-matter", _asked(two, max_in_flight=((0, 1),))),
        Case("pins-on-types", _asked(_types(), pins=((3, 1),), same_rank=((0, 4),))),
        Case("several", _asked(three, same_rank=((0, 5),), boundary_after=(2,), different_rank=((2, 3),))),
        Case("pins-clash", _asked(two, pins=((2, 0), (2, 1))), conflict="pin of layer 'layer2'"),
        Case(
            "same-and-different",
            _asked(two, same_rank=((1, 2),), different_rank=((1, 2),)),
            conflict="different ranks",
        ),
        Case("too-many-apart", _asked(two, different_rank=((0, 2, 4),)), conflict="different ranks"),
        Case(
            "boundary-in-stage",
            _asked(two, same_stage=((1, 4),), boundary_after=(2,)),
            conflict="stage boundary after layer 'layer2'",
        ),
        Case(
            "too-many-stages-asked",
            _asked(make_problem(RAMP[:5], 2, max_stages=4), stages_per_rank=fixed(min=3)),
            conflict="at least 3 stages",
        ),
        Case(
            "one-stage-for-both-ends",
            _asked(make_problem(RAMP, 2), same_rank=((0, 5),)),
            conflict="at most 1 stage",
        ),
        Case(
            "pins-too-large",
            _asked(
                make_problem(EQUAL, 2, state=2.0, limit=8.0), pins=tuple((layer, 1) for layer in range(5))
            ),
            conflict="memory limit of rank 1",
        ),
    ]


def _types() -> PipelineProblem:
    return make_problem((RAMP, SLOWER), 2, rank_type=(0, 1), max_stages=3)


BANK: tuple[Case, ...] = (
    *_plain(),
    *_devices(),
    *_transfers(),
    *_skips(),
    *_memory(),
    *_declared(),
)
