"""Random instances: the dials do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from octoplan.study.generator import DIALS, random_inputs, random_pair
from octoplan_schemas import RandomInstances


def draw(**dials: float) -> tuple[np.ndarray, np.ndarray, object]:
    """Return seconds of the body layers and of the head on the fast devices, and the pair."""
    pair = random_pair(
        {
            "layers": 400, "ranks": 8, "seeds": 0, "layer_heterogeneity": 0.5, "head_weight": 2.0,
            "slow_share": 0.0, "slow_factor": 2.0, "transfer_share": 0.05, "tightness": 1.5, **dials,
        }
    )  # fmt: skip
    seconds = np.array([sum(layer.cost["fast"].model_dump().values()) for layer in pair.model.layers])
    return seconds[1:-1], seconds[-1:], pair


def test_the_same_seed_gives_the_same_pair_and_another_one_another() -> None:
    one, same, other = draw()[2], draw()[2], draw(seeds=1)[2]
    assert one == same
    assert one.model.sha256() != other.model.sha256()


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.8])
def test_heterogeneity_is_the_spread_of_the_logarithm(spread: float) -> None:
    body, _, _ = draw(layer_heterogeneity=spread)
    assert np.log(body).std() == pytest.approx(spread, rel=0.1, abs=1e-12)
    assert body.mean() == pytest.approx(0.010, rel=0.15)


@pytest.mark.parametrize("weight", [1.0, 6.0])
def test_head_weight_is_in_mean_layers(weight: float) -> None:
    assert draw(head_weight=weight)[1][0] == pytest.approx(weight * 0.010)


def test_slow_devices_are_so_many_and_so_slow() -> None:
    pair = draw(slow_share=0.25, slow_factor=3.0)[2]
    assert [device.type for device in pair.cluster.devices].count("slow") == 2
    for layer in pair.model.layers:
        for part, seconds in layer.cost["fast"].model_dump().items():
            assert getattr(layer.cost["slow"], part) == pytest.approx(3.0 * seconds)


def test_a_transfer_takes_its_share_of_a_mean_forward() -> None:
    body, _, pair = draw(layer_heterogeneity=0.0, transfer_share=0.5)
    link = pair.cluster.links.intra_node
    forward = np.mean([layer.cost["fast"].forward_s for layer in pair.model.layers[1:-1]])
    assert pair.model.layers[3].output_bytes / link.bandwidth == pytest.approx(0.5 * forward, rel=0.05)
    assert len(body) == 400


def test_tightness_is_in_activations_of_one_microbatch() -> None:
    loose, tight = draw(tightness=3.0)[2], draw(tightness=1.0)[2]
    memory = [pair.cluster.device_types["fast"].memory_bytes for pair in (loose, tight)]
    activations = sum(layer.activation_bytes for layer in loose.model.layers)
    state = sum(layer.state_bytes for layer in loose.model.layers)
    assert memory[0] - memory[1] == pytest.approx(2 * activations)
    assert memory[1] == pytest.approx(1.25 * state / 8 + activations)


def test_every_combination_is_drawn_once_and_named_by_what_was_turned() -> None:
    dials = RandomInstances(seeds=(0, 1), layers=(4,), ranks=(2,), head_weight=(2.0, 5.0))
    pairs = list(random_inputs(dials))
    names = [(pair.model.name, pair.cluster.name) for pair in pairs]
    assert len(set(names)) == 4
    assert ("random-L4-w5-seed1", "random-R2") in names
    assert all(set(pair.parameters) == set(DIALS) for pair in pairs)
