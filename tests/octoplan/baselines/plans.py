"""Turn baseline schedules into plans, and price these with the reference simulator."""

from __future__ import annotations

from collections.abc import Sequence

from octoplan.baselines import BaselineSchedule, Op
from octoplan_schemas import Cluster, ModelGraph, Plan, transfer_words
from tests.reference_simulator import ReferenceResult, simulate

#: Every method is tried on so many ranks.
RANKS = range(1, 9)
ALL_METHODS = (
    "gpipe",
    "1f1b",
    "interleaved-1f1b",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
)


def simulate_equal(
    schedule: BaselineSchedule,
    forward_s: float = 1.0,
    input_s: float = 1.0,
    weight_s: float = 1.0,
    latency_s: float = 0.0,
) -> ReferenceResult:
    """Simulate with equal stages, one byte of activation each, and nothing else in memory."""
    num_stages = len(schedule.placement)
    model = equal_model(num_stages, forward_s, input_s, weight_s)
    return simulate(plan_of(schedule), model, cluster_of(max(schedule.placement) + 1, latency_s))


def equal_model(num_stages: int, forward_s: float, input_s: float, weight_s: float) -> ModelGraph:
    """Return one layer per stage, all alike."""
    cost = {"forward_s": forward_s, "backward_input_s": input_s, "backward_weight_s": weight_s}
    layers = [
        {
            "name": f"layer{stage}",
            "kind": "mlp",
            "cost": {"*": cost},
            "state_bytes": 0,
            "activation_bytes": 1,
            "weight_stash_bytes": 0,
            "workspace_bytes": 0,
            "output_bytes": 0,
        }
        for stage in range(num_stages)
    ]
    return ModelGraph.from_document({"format": "octoplan.model/1", "name": "equal", "layers": layers})


def cluster_of(num_ranks: int, latency_s: float = 0.0) -> Cluster:
    """Return devices of one type; links have a latency and no other cost for empty messages."""
    device_type = {"memory_bytes": 1e9, "peak_flops": 1e12, "memory_bandwidth": 1e12, "op_overhead_s": 0}
    link = {"latency_s": latency_s, "bandwidth": 1e9}
    return Cluster.from_document(
        {
            "format": "octoplan.cluster/1",
            "name": "test",
            "device_types": {"device": device_type},
            "devices": [{"name": f"d{rank}", "type": "device", "node": "n"} for rank in range(num_ranks)],
            "links": {"intra_node": link, "inter_node": link},
        }
    )


def plan_of(schedule: BaselineSchedule) -> Plan:
    """Lower a schedule: one layer per stage, and every SEND and RECV at the time of its producer."""
    placement = schedule.placement
    programs: list[list[str]] = [[] for _ in schedule.orders]
    for rank, (stage, kind, m) in _in_global_order(schedule.orders, len(placement)):
        programs[rank].append(f"{stage}{kind}{m}")
        neighbour = {"F": stage + 1, "I": stage - 1, "B": stage - 1, "W": -1}[kind]
        if 0 <= neighbour < len(placement) and placement[neighbour] != rank:
            send, receive = transfer_words(stage, neighbour, "F" if kind == "F" else "B", m)
            programs[rank].append(send)
            programs[placement[neighbour]].append(receive)
    return Plan.from_document(
        {
            "format": "octoplan.plan/1",
            "model": {"name": "equal", "sha256": ""},
            "cluster": {"name": "test", "sha256": ""},
            "job": {
                "microbatches": 1 + max(op[2] for op in schedule.orders[0]),
                "backward": schedule.backward,
                "max_stages_per_device": len(placement),
                "memory_limit": None,
            },
            "stages": [
                {"id": stage, "layers": [stage, stage + 1], "rank": rank}
                for stage, rank in enumerate(placement)
            ],
            "programs": programs,
            "predicted": {
                "makespan_s": 0,
                "lower_bound_s": None,
                "gap": None,
                "bubble_fraction": 0,
                "ranks": [],
            },
            "provenance": {"strategy": "test"},
        }
    )


def _in_global_order(orders: Sequence[Sequence[Op]], num_stages: int) -> list[tuple[int, Op]]:
    """Run the orders with ops of one second and free transfers; return ``(rank, op)`` in order of start."""
    ends: dict[Op, int] = {}
    free, place = [0] * len(orders), [0] * len(orders)
    result: list[tuple[int, Op]] = []
    for _ in range(sum(len(order) for order in orders)):
        possible = []
        for rank, order in enumerate(orders):
            if place[rank] < len(order):
                arrivals = [ends.get(source) for source in _sources(order[place[rank]], num_stages)]
                if None not in arrivals:
                    possible.append((max([free[rank], *(end for end in arrivals if end is not None)]), rank))
        assert possible, "the orders wait for each other"
        start, rank = min(possible)
        op = orders[rank][place[rank]]
        ends[op] = free[rank] = start + 1
        if op[1] == "B":
            ends[op[0], "I", op[2]] = start + 1  # whoever needs the gradient does not care which it was
        place[rank] += 1
        result.append((rank, op))
    return result


def _sources(op: Op, num_stages: int) -> list[Op]:
    stage, kind, m = op
    if kind == "F":
        return [(stage - 1, "F", m)] if stage > 0 else []
    if kind == "W":
        return [(stage, "I", m)]
    own: list[Op] = [(stage, "F", m)]
    return own if stage == num_stages - 1 else [*own, (stage + 1, "I", m)]


def idle_inside_s(schedule: BaselineSchedule, result: ReferenceResult) -> list[float]:
    """Idle seconds of every rank between its first and its last op."""
    idle = []
    for order, busy in zip(schedule.orders, result.busy_s, strict=True):
        idle.append(result.ops[order[-1]][1] - result.ops[order[0]][0] - busy)
    return idle


def most_live(schedule: BaselineSchedule) -> list[int]:
    """Most stage activations that every rank holds at a time, from the start of F to the end of W or B."""
    most = []
    for order in schedule.orders:
        live = peak = 0
        for _, kind, _ in order:
            live += {"F": 1, "I": 0, "W": -1, "B": -1}[kind]
            peak = max(peak, live)
        most.append(peak)
    return most
