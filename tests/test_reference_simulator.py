"""The reference simulator itself, against times and sizes worked out by hand."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

from octoplan_schemas import Cluster, ModelGraph, Plan
from tests.reference_simulator import simulate


def _layer(name: str, forward: float, backward: float, weight: float, **sizes: float) -> dict[str, Any]:
    cost = {"forward_s": forward, "backward_input_s": backward, "backward_weight_s": weight}
    fields = ("state_bytes", "activation_bytes", "weight_stash_bytes", "workspace_bytes", "output_bytes")
    return {"name": name, "kind": "mlp", "cost": {"*": cost}, **dict.fromkeys(fields, 0), **sizes}


def _model(*layers: dict[str, Any], skips: tuple[dict[str, Any], ...] = ()) -> ModelGraph:
    document = {"format": "octoplan.model/1", "name": "m", "layers": list(layers), "skips": list(skips)}
    return ModelGraph.from_document(document)


def _cluster(num_ranks: int, latency_s: float, bandwidth: float, op_overhead_s: float = 0.0) -> Cluster:
    kind = {"memory_bytes": 1, "peak_flops": 1, "memory_bandwidth": 1, "op_overhead_s": op_overhead_s}
    link = {"latency_s": latency_s, "bandwidth": bandwidth}
    devices = [{"name": f"d{rank}", "type": "t", "node": "n"} for rank in range(num_ranks)]
    document = {"format": "octoplan.cluster/1", "name": "c", "device_types": {"t": kind}, "devices": devices}
    return Cluster.from_document({**document, "links": {"intra_node": link, "inter_node": link}})


def _plan(num_microbatches: int, ranks: list[int], *programs: str) -> Plan:
    stages = [{"id": stage, "layers": [stage, stage + 1], "rank": rank} for stage, rank in enumerate(ranks)]
    predicted: dict[str, Any] = {
        "makespan_s": 0,
        "lower_bound_s": None,
        "gap": None,
        "bubble_fraction": 0,
        "ranks": [],
    }
    job = {
        "microbatches": num_microbatches,
        "backward": "split",
        "max_stages_per_device": 9,
        "memory_limit": None,
    }
    return Plan.from_document(
        {
            "format": "octoplan.plan/1",
            "model": {"name": "m", "sha256": ""},
            "cluster": {"name": "c", "sha256": ""},
            "job": job,
            "stages": stages,
            "programs": [program.split() for program in programs],
            "predicted": predicted,
            "provenance": {"strategy": "test"},
        }
    )


def test_transfers_queue_and_every_byte_counts() -> None:
    """Messages of 4 s on a link that is free again before they arrive; memory of every kind."""
    model = _model(
        _layer("a", 1, 2, 1, state_bytes=100, activation_bytes=10, workspace_bytes=1, output_bytes=8),
        _layer("b", 1, 2, 1, activation_bytes=20, retained_bytes=5, weight_stash_bytes=3, workspace_bytes=7),
    )
    plan = _plan(
        2,
        [0, 1],
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1RECV_F1 1I0 1SEND_B0 1F1 1I1 1SEND_B1 1W0 1W1",
    )
    result = simulate(plan, model, _cluster(2, latency_s=1.0, bandwidth=2.0, op_overhead_s=0.5))
    assert result.transfers[0, 1, 0] == (1.5, 6.5)
    assert result.transfers[0, 1, 1] == (5.5, 10.5)
    assert result.ops[1, "F", 0] == (6.5, 8.0)
    assert result.ops[1, "I", 0] == (8.0, 10.5)
    assert result.ops[1, "F", 1] == (10.5, 12.0)
    assert result.ops[1, "I", 1] == (12.0, 14.5)
    assert result.ops[1, "W", 1] == (16.0, 17.5)
    assert result.transfers[1, 0, 0] == (10.5, 15.5)
    assert result.transfers[1, 0, 1] == (14.5, 19.5)
    assert result.ops[0, "B", 0] == (15.5, 19.0)
    assert result.ops[0, "B", 1] == (19.5, 23.0)
    assert result.makespan_s == 23.0
    assert result.busy_s == [10.0, 11.0]
    # Rank 1: 20 + 7 while F0 and I0 run; I0 leaves 5 + 3; then F1 and I1 on top; then W0 beside 5 + 3.
    assert result.memory[1] == [
        (0.0, 0.0),
        (6.5, 27.0),
        (8.0, 27.0),
        (10.5, 35.0),
        (12.0, 35.0),
        (14.5, 23.0),
        (16.0, 15.0),
        (17.5, 0.0),
    ]
    # Rank 0: two activations and the gradient of microbatch 0 until its B starts: at once.
    assert result.memory[0] == [
        (0.0, 111.0),
        (1.5, 121.0),
        (3.0, 120.0),
        (15.5, 121.0),
        (19.0, 110.0),
        (19.5, 111.0),
        (23.0, 100.0),
    ]
    assert result.peak_bytes == [121.0, 35.0]
    assert result.peak_at_s == [1.5, 10.5]


def test_received_tensor_waits_in_memory() -> None:
    """Rank 1 is busy with microbatch 0 when the input of microbatch 1 arrives."""
    model = _model(_layer("a", 1, 0, 0, output_bytes=8), _layer("b", 5, 0, 0))
    plan = _plan(
        2,
        [0, 1],
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0RECV_B1 0B0 0B1",
        "1RECV_F0 1RECV_F1 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
    )
    result = simulate(plan, model, _cluster(2, latency_s=0.0, bandwidth=8.0))
    assert result.transfers[0, 1, 1] == (2.0, 3.0)
    assert result.memory[1] == [(0.0, 0.0), (2.0, 0.0), (3.0, 8.0), (7.0, 0.0), (12.0, 0.0)]


def test_skip_edges() -> None:
    """One message per stage pair: beside the chain if they are no neighbours, in it if they are."""
    skips = (
        {"from": "a", "to": "c", "bytes": 6},
        {"from": "b", "to": "c", "bytes": 4},
    )
    model = _model(
        _layer("a", 1, 1, 0, output_bytes=2),
        _layer("b", 1, 1, 0, output_bytes=2),
        _layer("c", 1, 1, 0),
        skips=skips,
    )
    plan = _plan(
        1,
        [0, 1, 2],
        "0F0 0SEND_F0@2 0SEND_F0 0RECV_B0@2 0RECV_B0 0B0",
        "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0",
        "2RECV_F0@0 2RECV_F0 2F0 2B0 2SEND_B0@0 2SEND_B0",
    )
    result = simulate(plan, model, _cluster(3, latency_s=0.0, bandwidth=1.0))
    assert result.transfers[0, 2, 0] == (1.0, 7.0)
    assert result.transfers[0, 1, 0] == (1.0, 3.0)
    assert result.transfers[1, 2, 0] == (4.0, 10.0)
    assert result.ops[2, "F", 0] == (10.0, 11.0)
    assert result.transfers[2, 0, 0] == (12.0, 18.0)
    assert result.ops[0, "B", 0] == (21.0, 22.0)


def test_neighbours_on_one_rank_send_nothing() -> None:
    model = _model(_layer("a", 1, 1, 1, output_bytes=9), _layer("b", 1, 1, 1))
    result = simulate(_plan(1, [0, 0], "0F0 1F0 1B0 0I0 0W0"), model, _cluster(1, 1.0, 1.0))
    assert result.transfers == {}
    assert result.makespan_s == 6.0
    assert result.peak_bytes == [0.0]


def test_a_cycle_is_refused() -> None:
    model = _model(_layer("a", 1, 1, 1), _layer("b", 1, 1, 1))
    plan = _plan(1, [0, 1], "0RECV_B0 0B0 0F0 0SEND_F0", "1RECV_F0 1F0 1B0 1SEND_B0")
    with pytest.raises(nx.NetworkXUnfeasible):
        simulate(plan, model, _cluster(2, 0.0, 1.0))
