"""Slack, critical path, and what the simulator refuses."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan.checking import check, simulate
from octoplan.lowering import read_schedule
from octoplan.simulator import attribute_bubbles, replay, simulate_schedule
from octoplan_schemas import Cluster, InputError, ModelGraph, check_plan
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment
from tests.octoplan.simulator.cases import SimulatedCase, random_case
from tests.random_problems import RandomJob, plan_of

seeds = st.integers(0, 2**32)


def plan_graph(case: SimulatedCase) -> nx.DiGraph[Any]:
    """Return ops and messages by their index; an edge's weight is how long after its tail its head may start."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    simulation, staged = case.simulation, case.simulation.schedule.staged
    order, pair_begin = simulation.schedule.order, simulation.schedule.pair_begin
    op_keys, message_keys = case.op_keys, case.message_keys
    number = {key: index for index, key in enumerate(op_keys)}
    durations = [staged.duration_s[stage, "FIWB".index(kind)] for stage, kind, _ in op_keys]
    for index, (stage, kind, microbatch) in enumerate(op_keys):
        graph.add_edge("begin", index, weight=0.0)
        graph.add_edge(index, "end", weight=durations[index])
        if index not in order.rank_begin:
            graph.add_edge(index - 1, index, weight=durations[index - 1])
        before = {"F": None, "I": "F", "B": "F", "W": "I"}[kind]
        if before is not None:
            producer = number[stage, before, microbatch]
            graph.add_edge(producer, index, weight=durations[producer])
    for index, message in enumerate(message_keys):
        source, destination, microbatch = message
        is_forward = source < destination
        edge = case.job.edges.index((min(source, destination), max(source, destination)))
        busy = staged.transfer_s[edge, 0 if is_forward else 1]
        latency = staged.latency_s[edge, 0 if is_forward else 1]
        kinds = "F" if is_forward else "IB"
        (producer,) = [
            number[source, kind, microbatch] for kind in kinds if (source, kind, microbatch) in number
        ]
        (consumer,) = [
            number[destination, kind, microbatch]
            for kind in kinds
            if (destination, kind, microbatch) in number
        ]
        node = len(op_keys) + index
        graph.add_edge(producer, node, weight=durations[producer])
        graph.add_edge(node, consumer, weight=busy + latency)
        if index + 1 < len(message_keys) and index + 1 not in pair_begin:
            graph.add_edge(node, node + 1, weight=busy)
    return graph


def makespan_if_late(case: SimulatedCase, graph: nx.DiGraph[Any], op: int, delay_s: float) -> float:
    """Return the longest path when one op starts so much after its earliest time."""
    late = graph.copy()
    late["begin"][op]["weight"] = float(case.simulation.start_s[op]) + delay_s
    return float(nx.dag_longest_path_length(late))


@settings(deadline=None, max_examples=60)
@given(seeds)
def test_slack_is_what_an_op_may_be_late(seed: int) -> None:
    case = random_case(seed)
    graph = plan_graph(case)
    makespan = case.simulation.makespan_s
    assert nx.dag_longest_path_length(graph) == pytest.approx(makespan)
    slack = case.simulation.slack_s
    assert (slack >= -1e-9).all()
    for op in Random(seed).sample(range(len(slack)), min(len(slack), 6)):
        assert makespan_if_late(case, graph, op, max(slack[op], 0.0)) == pytest.approx(makespan)
        assert makespan_if_late(case, graph, op, slack[op] + 0.5) == pytest.approx(makespan + 0.5)


@settings(deadline=None, max_examples=150)
@given(seeds)
def test_critical_path_leads_from_start_to_end_without_a_pause(seed: int) -> None:
    case = random_case(seed)
    simulation, graph = case.simulation, plan_graph(case)
    num_ops = len(simulation.start_s)
    path = simulation.critical_path()
    starts = [*simulation.start_s.tolist(), *simulation.message_start_s.tolist()]
    assert starts[path[0]] == 0.0
    assert path[-1] < num_ops
    total = 0.0
    for before, after in pairwise(path):
        assert graph.has_edge(before, after)
        total += graph[before][after]["weight"]
        assert starts[after] == pytest.approx(total)
    assert total + graph[path[-1]]["end"]["weight"] == pytest.approx(simulation.makespan_s)
    ops = [node for node in path if node < num_ops]
    np.testing.assert_allclose(simulation.slack_s[ops], 0.0, atol=1e-9)


@settings(deadline=None, max_examples=100)
@given(seeds)
def test_words_of_ops_and_messages(seed: int) -> None:
    case = random_case(seed)
    schedule = case.simulation.schedule
    words = {schedule.word(node) for node in range(len(case.op_keys) + len(case.message_keys))}
    assert words == {word for program in case.plan.programs for word in program if "RECV" not in word}


def two_ranks(*, latency_s: float = 0.0) -> tuple[ModelGraph, Cluster]:
    cost = {"forward_s": 1.0, "backward_input_s": 1.0, "backward_weight_s": 1.0}
    sizes = dict.fromkeys(
        ("state_bytes", "activation_bytes", "weight_stash_bytes", "workspace_bytes", "output_bytes"), 1
    )
    layers = [{"name": f"l{number}", "kind": "mlp", "cost": {"*": cost}, **sizes} for number in range(2)]
    kind = {"memory_bytes": 9, "peak_flops": 1, "memory_bandwidth": 1, "op_overhead_s": 0}
    link = {"latency_s": latency_s, "bandwidth": 1.0}
    cluster = {
        "format": "octoplan.cluster/1",
        "name": "pair",
        "device_types": {"d": kind},
        "devices": [{"name": f"d{rank}", "type": "d", "node": "n"} for rank in range(2)],
        "links": {"intra_node": link, "inter_node": link},
    }
    model = {"format": "octoplan.model/1", "name": "two", "layers": layers}
    return ModelGraph.from_document(model), Cluster.from_document(cluster)


def test_an_order_that_waits_on_itself_is_refused_and_the_check_names_the_cycle() -> None:
    """Rank 0 wants the first gradient before its second forward; rank 1 runs both forwards first."""
    model, cluster = two_ranks()
    job = RandomJob(model, cluster, Assignment.from_sizes([1, 1], [0, 1]), 2, True)
    programs = [
        ["0F0", "0SEND_F0", "0RECV_B0", "0B0", "0F1", "0SEND_F1", "0RECV_B1", "0B1"],
        ["1RECV_F0", "1F0", "1RECV_F1", "1F1", "1B0", "1SEND_B0", "1B1", "1SEND_B1"],
    ]
    plan = plan_of(job, programs)
    (finding,) = check_plan(plan)
    assert finding.rule == "deadlock"
    cycle = finding.message.split(": ")[1].split(" -> ")
    assert cycle[0] == cycle[-1]
    # Either through the ops, or by the order of SEND and RECV words alone.
    assert {"0SEND_F1", "1SEND_B0"} <= set(cycle)
    with pytest.raises(InputError, match="waits on itself"):
        simulate_schedule(read_schedule(plan, job.staged()))
    with pytest.raises(InputError, match=r"deadlock: these wait for each other: .*0SEND_F1"):
        simulate(plan, model, cluster)
    assert [found.rule for found in check(plan, model, cluster)] == ["deadlock"]
    orders = [
        [(0, "F", 0), (0, "B", 0), (0, "F", 1), (0, "B", 1)],
        [(1, "F", 0), (1, "F", 1), (1, "B", 0), (1, "B", 1)],
    ]
    with pytest.raises(InputError, match="only 2 of 8 ops can run"):
        replay(job.staged(), Order.from_lists(orders, 2))


@pytest.mark.parametrize("latency_s", [-1.0, float("nan"), float("inf"), "1", None, True])
def test_latencies_that_make_no_sense_are_refused(latency_s: Any) -> None:
    with pytest.raises(InputError, match="latency_s"):
        two_ranks(latency_s=latency_s)


@pytest.mark.parametrize("cost", [-1.0, float("nan")])
def test_costs_that_make_no_sense_are_refused(cost: float) -> None:
    document = two_ranks()[0].to_document()
    document["layers"][1]["cost"]["*"]["forward_s"] = cost
    with pytest.raises(InputError, match=r"layers.1.cost.*forward_s"):
        ModelGraph.from_document(document)


def test_a_plan_of_zero_seconds_has_no_bubble() -> None:
    model, cluster = two_ranks()
    document = model.to_document()
    for layer in document["layers"]:
        layer["cost"]["*"] = dict.fromkeys(("forward_s", "backward_input_s", "backward_weight_s"), 0)
    one = cluster.model_copy(update={"devices": cluster.devices[:1]})
    job = RandomJob(ModelGraph.from_document(document), one, Assignment.from_sizes([2], [0]), 1, True)
    simulation = simulate_schedule(read_schedule(plan_of(job, [["0F0", "0B0"]]), job.staged()))
    assert simulation.makespan_s == 0.0
    assert simulation.bubble_fraction == 0.0
    assert attribute_bubbles(simulation).intervals() == []
