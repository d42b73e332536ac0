"""Roofline by hand, and devices against the cluster files, which come from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from octoplan.cost_model import DEVICES, Operator, Roofline, Work, layer_cost
from octoplan_schemas import Cluster, Link, load

CLUSTERS = Path(__file__).parents[3] / "examples" / "clusters"
ROOFLINE = Roofline(peak_flops=1000.0, memory_bandwidth=100.0, compute_efficiency=0.5, memory_efficiency=0.8)


def test_the_slower_of_computing_and_moving_counts() -> None:
    assert ROOFLINE.seconds(Work(flops=2000, bytes=80)) == pytest.approx(4.0)
    assert ROOFLINE.seconds(Work(flops=2000, bytes=800)) == pytest.approx(10.0)
    assert ROOFLINE.seconds(Work()) == 0.0


def test_operators_add_up_and_reductions_need_a_link() -> None:
    operator = Operator(
        "op",
        forward=Work(flops=500),
        backward_input=Work(bytes=160),
        backward_weight=Work(flops=1500),
        forward_all_reduce_bytes=400,
        backward_all_reduce_bytes=800,
    )
    link = Link(latency_s=0.25, bandwidth=50.0)
    alone = layer_cost([operator, operator], ROOFLINE, tensor_parallel=4)
    assert (alone.forward_s, alone.backward_input_s, alone.backward_weight_s) == pytest.approx(
        (2.0, 4.0, 6.0)
    )
    joined = layer_cost([operator], ROOFLINE, tensor_parallel=4, link=link)
    # Six steps of a quarter of the bytes each.
    assert joined.forward_s == pytest.approx(1.0 + 6 * (0.25 + 100 / 50))
    assert joined.backward_input_s == pytest.approx(2.0 + 6 * (0.25 + 200 / 50))
    assert layer_cost([operator], ROOFLINE, tensor_parallel=1, link=link).forward_s == pytest.approx(1.0)


@pytest.mark.parametrize("path", sorted(CLUSTERS.glob("*.json")), ids=lambda path: path.stem)
def test_catalogue_agrees_with_the_clusters(path: Path) -> None:
    for name, device_type in load(path, Cluster).device_types.items():
        device = DEVICES[name]
        assert device.memory_bytes == device_type.memory_bytes
        assert device.peak_flops == device_type.peak_flops
        assert device.memory_bandwidth == device_type.memory_bandwidth


def test_catalogue_is_plausible_and_sourced() -> None:
    assert set(DEVICES) == {"a100", "h100", "h800", "h200", "b200", "mi300x"}
    for device in DEVICES.values():
        assert device.source
        # All of them do 100 to 400 flops in the time of one byte.
        assert 100 < device.peak_flops / device.memory_bandwidth < 400
