"""Bubble attribution against a plain reading of its definitions, moment by moment."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.cli.bubbles import bubble_table, division_table
from octoplan.simulator import Cause, Idle, attribute_bubbles
from octoplan.simulator.attribution import CAUSES
from octoplan_schemas import parse_word, transfer_words
from tests import reference_simulator
from tests.octoplan.simulator.cases import SimulatedCase, random_case
from tests.random_problems import MessageKey, OpKey
from tests.reference_simulator import ReferenceResult

seeds = st.integers(0, 2**32)


class Judge:
    """Gives one moment of one rank its cause and culprit, from the reference simulation."""

    def __init__(self, case: SimulatedCase) -> None:
        self.case = case
        self.result: ReferenceResult = reference_simulator.simulate(
            case.plan, case.job.model, case.job.cluster
        )
        self.ranks = case.job.assignment.ranks
        self.limits = case.simulation.schedule.staged.memory_limit_bytes.tolist()
        self.programs: list[list[OpKey]] = [
            [(word.stage, word.kind, word.microbatch) for word in map(parse_word, program) if word.is_compute]
            for program in case.plan.programs
        ]
        self.inputs: dict[OpKey, list[MessageKey]] = defaultdict(list)
        for transfer in self.result.transfers:
            self.inputs[self.end_of(transfer, 1)].append(transfer)

    def end_of(self, transfer: MessageKey, end: int) -> OpKey:
        """Return what makes (0) or uses (1) the tensor of a transfer."""
        stage, microbatch = transfer[end], transfer[2]
        if transfer[0] < transfer[1]:
            return stage, "F", microbatch
        fused = stage, "B", microbatch
        return fused if fused in self.result.ops else (stage, "I", microbatch)

    def causes(self, rank: int, moment: float) -> set[tuple[Cause, str]]:
        """Return the causes that may be given: none while the rank computes, several if inputs tie."""
        ops, program = self.result.ops, self.programs[rank]
        if any(ops[op][0] < moment < ops[op][1] for op in program):
            return set()
        upcoming = [op for op in program if ops[op][0] > moment]
        if not upcoming:
            ends = [end for _, end in ops.values()]
            return {(Cause.DRAINING, word(op)) for op in ops if ops[op][1] == pytest.approx(max(ends))}
        if len(upcoming) == len(program):
            return {(Cause.FILLING, word(upcoming[0]))}
        awaited, *later = upcoming
        forward = next((op for op in later if op[1] == "F"), None)
        if forward is not None and self.is_ready(forward, moment) and self.is_full(rank, forward, moment):
            return {(Cause.MEMORY, word(forward))}
        arrivals = [self.result.transfers[transfer][1] for transfer in self.inputs[awaited]]
        last = [
            transfer
            for transfer, arrival in zip(self.inputs[awaited], arrivals, strict=True)
            if arrival == pytest.approx(max(arrivals))
        ]
        return {self.cause_of_late_input(transfer, moment) for transfer in last}

    def cause_of_late_input(self, transfer: MessageKey, moment: float) -> tuple[Cause, str]:
        producer = self.end_of(transfer, 0)
        if moment < self.result.ops[producer][1]:
            return Cause.COMPUTE, word(producer)
        source, destination, microbatch = transfer
        direction = "F" if source < destination else "B"
        return Cause.TRANSFER, transfer_words(source, destination, direction, microbatch)[0]

    def is_ready(self, forward: OpKey, moment: float) -> bool:
        stage, _, microbatch = forward
        arrivals = [self.result.transfers[transfer][1] for transfer in self.inputs[forward]]
        made_here = [
            self.result.ops[early, "F", microbatch][1]
            for early, late in self.case.job.edges
            if late == stage and self.ranks[early] == self.ranks[late]
        ]
        return all(time <= moment for time in (*arrivals, *made_here))

    def is_full(self, rank: int, forward: OpKey, moment: float) -> bool:
        held = [size for time, size in self.result.memory[rank] if time <= moment][-1]
        first, end = self.case.job.assignment.boundaries[forward[0]]
        layers = self.case.job.model.layers[first:end]
        activation = sum(layer.activation_bytes for layer in layers)
        workspace = max(layer.workspace_bytes for layer in layers)
        staged = self.case.simulation.schedule.staged
        received = sum(
            staged.edge_bytes[self.case.job.edges.index(transfer[:2])] for transfer in self.inputs[forward]
        )
        return held + activation + workspace - received > self.limits[rank] * (1 + 1e-11)


def word(op: OpKey) -> str:
    return f"{op[0]}{op[1]}{op[2]}"


@pytest.mark.parametrize("limit", [0.5, 0.9, 1.0, None])
@settings(deadline=None, max_examples=60)
@given(seed=seeds)
def test_every_moment_has_the_cause_of_the_definitions(limit: float | None, seed: int) -> None:
    case = random_case(seed, limit=limit, max_microbatches=3)
    judge = Judge(case)
    found: dict[int, list[Idle]] = defaultdict(list)
    for idle in attribute_bubbles(case.simulation).intervals():
        found[idle.rank].append(idle)
    intervals = (*judge.result.ops.values(), *judge.result.transfers.values())
    for first, second in pairwise(sorted({time for pair in intervals for time in pair})):
        if second - first < 1e-9:
            continue
        moment = (first + second) / 2
        for rank in range(case.plan.num_ranks):
            covering = [idle for idle in found[rank] if idle.start_s < moment < idle.end_s]
            expected = judge.causes(rank, moment)
            assert len(covering) == bool(expected)
            assert {(idle.cause, idle.culprit) for idle in covering} <= expected


@settings(deadline=None, max_examples=200)
@given(seeds)
def test_sums_are_the_idle_time(seed: int) -> None:
    simulation = random_case(seed, limit=0.7).simulation
    report = attribute_bubbles(simulation)
    idle = simulation.makespan_s - simulation.busy_s
    for table in (report.by_cause_s, report.by_rank_s, report.by_global_times_s):
        assert (table >= 0).all()
        np.testing.assert_allclose(table.sum(axis=1), idle, rtol=1e-9, atol=1e-9)
    *rows, total = report.rows()
    assert [row.rank for row in rows] == list(range(len(idle)))
    assert total.rank is None
    assert total.idle_s == pytest.approx(idle.sum(), abs=1e-9)
    assert sum(seconds for *_, seconds in report.worst_culprits(10**9)) == pytest.approx(idle.sum(), abs=1e-9)
    for table in (bubble_table(report), division_table(report)):
        assert table.row_count == len(idle) + 1
        assert [
            float(str(cell).replace(",", "")) for cell in [*table.columns[1].cells][:-1]
        ] == pytest.approx(idle * 1e3, abs=0.006)


def test_all_causes_occur() -> None:
    """The tests above would be hollow if they met only some causes."""
    seen: set[int] = set()
    for seed in range(60):
        seen |= set(attribute_bubbles(random_case(seed, limit=0.6).simulation).cause.tolist())
    assert {CAUSES[cause] for cause in seen} == set(Cause)
