"""Random models and clusters with dials: the same seed and dials give the same pair on every machine.

A model is an embedding, body layers and a head; a cluster has fast and slow devices on links of one speed.

* Times of body layers are log-normal with the given spread around `_MEAN_S`; F, I and W share them about equally.
* The head's time is ``head_weight`` mean layers, the embedding's a tenth of one.
* Devices of the slow type are spread over the ranks at random and take ``slow_factor`` times as long.
* A transfer between neighbours takes ``transfer_share`` of a mean layer's forward; latency adds a hundredth to that.
* A device's memory is its share of the state with a quarter to spare, and ``tightness`` times the activations of one
  microbatch through the whole model: that is what 1F1B holds on the first rank of a uniform partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from octoplan_schemas import (
    Cluster,
    Device,
    DeviceType,
    InputError,
    Layer,
    Link,
    Links,
    ModelGraph,
    OpCost,
    RandomInstances,
)

#: Dials in the order in which a suite lists them; each is short in the names.
DIALS = {
    "layers": "L",
    "ranks": "R",
    "layer_heterogeneity": "h",
    "head_weight": "w",
    "slow_share": "s",
    "slow_factor": "f",
    "transfer_share": "t",
    "tightness": "m",
    "seeds": "seed",
}
_MEAN_S = 0.010
_STATE_BYTES = 2.0e9
_ACTIVATION_BYTES = 4.0e8
_OUTPUT_BYTES = 32_000_000
_MANY_PAIRS = 20_000


@dataclass(frozen=True, slots=True)
class RandomPair:
    """A model and a cluster, and the dials they were drawn with."""

    model: ModelGraph
    cluster: Cluster
    parameters: Mapping[str, float]


def random_inputs(dials: RandomInstances) -> Iterator[RandomPair]:
    """Yield one pair for every combination of the lists."""
    lists = [tuple(dict.fromkeys(getattr(dials, name))) for name in DIALS]
    if np.prod([float(len(values)) for values in lists]) > _MANY_PAIRS:
        raise InputError(f"more than {_MANY_PAIRS} combinations; shorten the lists", field="instances.random")
    for values in product(*lists):
        yield random_pair(dict(zip(DIALS, values, strict=True)))


def random_pair(parameters: Mapping[str, float]) -> RandomPair:
    """Draw one pair; ``parameters`` has a number for each of `DIALS`."""
    random = np.random.default_rng(int(parameters["seeds"]))
    model = _model(parameters, random)
    return RandomPair(model, _cluster(parameters, model, random), parameters)


def _model(parameters: Mapping[str, float], random: np.random.Generator) -> ModelGraph:
    spread, slowness = parameters["layer_heterogeneity"], parameters["slow_factor"]
    count = int(parameters["layers"])
    # A log-normal's mean grows with its spread; what is subtracted keeps it at one.
    weights = np.exp(spread * random.standard_normal(count) - spread**2 / 2)
    sizes = np.exp(spread / 2 * random.standard_normal(count) - spread**2 / 8)
    body = [
        _layer(f"layers.{index}", "transformer", float(weight), float(size), slowness, random)
        for index, (weight, size) in enumerate(zip(weights, sizes, strict=True))
    ]
    embedding = _layer("embedding", "embedding", 0.1, 0.2, slowness, random)
    head = _layer("lm_head", "lm_head", float(parameters["head_weight"]), 1.0, slowness, random)
    name = _name("random", parameters, ("layers", "layer_heterogeneity", "head_weight", "seeds"))
    return ModelGraph(format=ModelGraph.FORMAT, name=name, layers=(embedding, *body, head))


def _layer(
    name: str, kind: str, weight: float, size: float, slowness: float, random: np.random.Generator
) -> Layer:
    """Return a layer of ``weight`` mean times and ``size`` mean sizes."""
    times = [float(share) * weight * _MEAN_S for share in random.dirichlet((60.0, 60.0, 60.0))]
    return Layer(
        name=name,
        kind=kind,
        cost={"fast": _cost(times, 1.0), "slow": _cost(times, slowness)},
        state_bytes=round(size * _STATE_BYTES),
        activation_bytes=round(size * _ACTIVATION_BYTES),
        weight_stash_bytes=round(0.1 * size * _ACTIVATION_BYTES),
        workspace_bytes=0,
        output_bytes=_OUTPUT_BYTES,
    )


def _cost(times_s: list[float], factor: float) -> OpCost:
    forward, backward_input, backward_weight = (time * factor for time in times_s)
    return OpCost(forward_s=forward, backward_input_s=backward_input, backward_weight_s=backward_weight)


def _cluster(parameters: Mapping[str, float], model: ModelGraph, random: np.random.Generator) -> Cluster:
    num_ranks = int(parameters["ranks"])
    num_slow = round(parameters["slow_share"] * num_ranks)
    slow = set(random.permutation(num_ranks)[:num_slow].tolist())
    transfer_s = parameters["transfer_share"] * _MEAN_S / 3
    link = Link(latency_s=transfer_s / 100, bandwidth=_OUTPUT_BYTES / max(transfer_s, 1e-9))
    state = sum(layer.state_bytes for layer in model.layers)
    activation = sum(layer.activation_bytes for layer in model.layers)
    memory = round(1.25 * state / num_ranks + parameters["tightness"] * activation)
    device_type = DeviceType(memory_bytes=memory, peak_flops=1e15, memory_bandwidth=3e12, op_overhead_s=0)
    return Cluster(
        format=Cluster.FORMAT,
        name=_name(
            "random", parameters, ("ranks", "slow_share", "slow_factor", "transfer_share", "tightness")
        ),
        device_types={"fast": device_type, "slow": device_type},
        devices=tuple(
            Device(name=f"d{rank}", type="slow" if rank in slow else "fast", node="n0")
            for rank in range(num_ranks)
        ),
        links=Links(intra_node=link, inter_node=link),
    )


def _name(prefix: str, parameters: Mapping[str, float], dials: tuple[str, ...]) -> str:
    """Name what was drawn by its dials, except those that nobody turned."""
    defaults = {
        name: field.default[0]
        for name, field in RandomInstances.model_fields.items()
        if not field.is_required()
    }
    turned = [name for name in dials if parameters[name] != defaults.get(name)]
    return "-".join([prefix, *(f"{DIALS[name]}{parameters[name]:g}" for name in turned)])
