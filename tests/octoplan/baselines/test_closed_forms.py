"""Makespans, bubbles and peak activations that the papers state for equal stages and free transfers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest

from octoplan.baselines import BaselineSchedule, Op, build_schedule
from tests.octoplan.baselines.plans import RANKS, idle_inside_s, most_live, simulate_equal

#: Seconds of F, I and W of one stage; sums of them are exact in binary floating point.
COSTS = [(1.0, 1.0, 1.0), (1.0, 1.25, 0.75), (0.5, 1.5, 1.0)]


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_gpipe_and_1f1b(name: str, num_ranks: int, costs: tuple[float, float, float]) -> None:
    for num_microbatches in (1, num_ranks, 2 * num_ranks + 1):
        schedule = build_schedule(name, num_ranks, num_microbatches)
        result = simulate_equal(schedule, *costs)
        assert result.makespan_s == (num_microbatches + num_ranks - 1) * sum(costs)
        held = [
            num_microbatches if name == "gpipe" else min(num_ranks - r, num_microbatches)
            for r in range(num_ranks)
        ]
        assert result.peak_bytes == held == most_live(schedule)


@pytest.mark.parametrize("stages_per_rank", [2, 4])
@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("name", ["interleaved-1f1b", "looped-bfs"])
def test_interleaved(name: str, num_ranks: int, stages_per_rank: int) -> None:
    """F and B below are those of a whole rank; microbatches are a multiple of the ranks."""
    forward_s, backward_s = 1.0 * stages_per_rank, 2.0 * stages_per_rank
    for num_microbatches in (num_ranks, 3 * num_ranks):
        schedule = build_schedule(name, num_ranks, num_microbatches, stages_per_rank)
        result = simulate_equal(schedule)
        bubble = (num_ranks - 1) / stages_per_rank * (forward_s + backward_s)
        assert result.makespan_s == pytest.approx(
            num_microbatches * (forward_s + backward_s) + bubble, rel=1e-12
        )


@pytest.mark.parametrize("num_ranks", range(2, 7))
def test_interleaved_with_a_remainder_beats_1f1b(num_ranks: int) -> None:
    """Not a multiple of the ranks: groups grow as Megatron's do, and the bubble stays that of the formula."""
    for num_microbatches in range(num_ranks + 1, 3 * num_ranks):
        result = simulate_equal(build_schedule("interleaved-1f1b", num_ranks, num_microbatches))
        assert result.makespan_s == num_microbatches * 6.0 + (num_ranks - 1) * 3.0


@pytest.mark.parametrize("costs", [*COSTS, (1.0, 1.5, 0.5), (1.0, 0.75, 1.25), (0.75, 1.0, 1.25)])
@pytest.mark.parametrize("num_ranks", RANKS)
def test_zb_h1(num_ranks: int, costs: tuple[float, float, float]) -> None:
    """Published: bubble (P - 1)(F + I - W), at the memory of 1F1B. It holds where W is the shortest op.

    The last rank cannot start before (P - 1) F, and rank 0, which may hold P microbatches, waits (P - 1) I
    for its first gradient, so a longer W gains no more: the bubble is (P - 1)(F + I - min(F, I, W)).
    """
    for num_microbatches in (num_ranks, 2 * num_ranks, 3 * num_ranks + 1):
        schedule = build_schedule("zb-h1", num_ranks, num_microbatches)
        result = simulate_equal(schedule, *costs)
        bubble = (num_ranks - 1) * (costs[0] + costs[1] - min(costs))
        assert result.makespan_s - num_microbatches * sum(costs) == bubble
        assert max(most_live(schedule)) == num_ranks


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("name", ["zb-h2", "zb-v"])
def test_no_bubble_once_filled(name: str, num_ranks: int) -> None:
    for num_microbatches in (2 * num_ranks - 1, 2 * num_ranks, 3 * num_ranks + 1):
        schedule = build_schedule(name, num_ranks, num_microbatches)
        result = simulate_equal(schedule)
        assert idle_inside_s(schedule, result) == [0.0] * num_ranks
        per_rank = len(schedule.placement) // num_ranks
        assert result.makespan_s == 3.0 * per_rank * num_microbatches + num_ranks - 1
        assert max(most_live(schedule)) == (2 * num_ranks - 1 if name == "zb-h2" else 2 * num_ranks)


@pytest.mark.parametrize("num_ranks", [*RANKS, 9, 11, 16])
@pytest.mark.parametrize("name", ["v-half", "v-min"])
def test_controllable_memory(name: str, num_ranks: int) -> None:
    """Peaks as published, in microbatches of two stages; bubbles between those of zb-v and of 1F1B.

    The papers state no closed form of these bubbles; the ones below are what reordering makes of the blocks,
    whose legs, squeezed in order, leave 3 P (v-half) and 4 P (v-min) slots less a constant.
    """
    num_microbatches = 2 * num_ranks
    schedule = build_schedule(name, num_ranks, num_microbatches)
    result = simulate_equal(schedule)
    microbatches_held = (num_ranks + 2) // 2 if name == "v-half" else (num_ranks + 4) // 3
    assert max(result.peak_bytes) == max(most_live(schedule)) == 2 * microbatches_held
    zb_v, one_f_one_b = num_ranks - 1, 6 * (num_ranks - 1)
    if name == "v-half":
        expected = 3 * num_ranks - (7, 4)[num_ranks % 2]
    else:
        expected = 4 * num_ranks - (7, 5, 9)[num_ranks % 3]
    bubble = result.makespan_s - 6.0 * num_microbatches
    assert bubble == max(expected, zb_v) <= one_f_one_b


@pytest.mark.parametrize("num_ranks", RANKS)
def test_dualpipe_v(num_ranks: int) -> None:
    """Published: bubble (P - 1)(F&B + B - 3 W), and 2 P + 1 stage activations: within P + 1 microbatches.

    F&B is a forward and a backward that run, and hand on their results, as one. Ops of our execution model do
    not overlap, and a forward hands on its output as soon as it ends. So F&B = F + B, with F = I = W = 1 the
    published bubble is 2 (P - 1), and that is what the orders take while each pair is one op; as two ops they
    take half.
    """
    for num_microbatches in (2 * num_ranks, 2 * num_ranks + 1, 4 * num_ranks):
        schedule = build_schedule("dualpipe-v", num_ranks, num_microbatches)
        result = simulate_equal(schedule)
        assert result.makespan_s - 6.0 * num_microbatches == num_ranks - 1
        assert _paired_makespan(schedule) - 6 * num_microbatches == (num_ranks - 1) * (3 + 2 - 3)
        assert most_live(schedule) == result.peak_bytes == [2 * num_ranks + 1] * num_ranks
        assert max(result.peak_bytes) <= 2 * (num_ranks + 1)


def _paired_makespan(schedule: BaselineSchedule) -> int:
    """Makespan with F = I = W = 1 where every overlapped F and B of DualPipeV is one op of three seconds."""
    last_rank, last_stage = max(schedule.placement), len(schedule.placement) - 1
    graph: nx.DiGraph[Op] = nx.DiGraph()
    leader: dict[Op, Op] = {}
    for rank, order in enumerate(schedule.orders):
        for before, op in pairwise(order):
            first_backward = op == (last_rank + 1, "B", 0)  # the one pair that is published as not overlapped
            paired = before[1] == "F" and op[1] == "B" and not (rank == last_rank and first_backward)
            leader[op] = leader[before] = leader.get(before, before)
            if not paired:
                leader[op] = op
                graph.add_edge(leader[before], op)
    seconds = Counter[Op]()
    for op, head in leader.items():
        seconds[head] += {"F": 1, "I": 1, "W": 1, "B": 2}[op[1]]
    for (stage, kind, m), head in leader.items():
        if kind == "F" and stage > 0:
            graph.add_edge(leader[stage - 1, "F", m], head)
        elif kind in "IB":
            source = (last_stage, "F", m) if stage == last_stage else (stage + 1, "B", m)
            graph.add_edge(leader.get(source) or leader[stage + 1, "I", m], head)
    ends: dict[Op, int] = {}
    for op in nx.topological_sort(graph):
        ends[op] = seconds[op] + max((ends[before] for before in graph.predecessors(op)), default=0)
    return max(ends.values())
