"""What the kernels read: the job as arrays, and one partition and placement of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octoplan_schemas import Cluster, ModelGraph

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD, SEND = range(5)
#: Which ops a stage and microbatch may have: F and B; F, I and W; or a choice between both each time.
FUSED, SPLIT, MIXED = range(3)
#: Directions of an edge: activations go from the early stage to the late one, gradients back.
ACTIVATION, GRADIENT = range(2)
#: A node is no better than the incumbent if its bound is not lower by more than this share.
TOLERANCE = 1e-12


class Job(NamedTuple):
    """Layers and devices. ``L`` layers, ``R`` ranks, ``K`` skips."""

    #: ``(R, L, 3)`` seconds of F, I and W, and ``(R,)`` of an op's overhead.
    seconds: Floats
    overhead: Floats
    #: ``(L,)`` bytes.
    state: Floats
    activation: Floats
    retained: Floats
    stash: Floats
    workspace: Floats
    output: Floats
    #: ``(K, 2)`` layers and ``(K,)`` bytes.
    skips: Ints
    skip_bytes: Floats
    #: ``(R, R)``
    latency: Floats
    bandwidth: Floats
    #: ``(R,)`` bytes of the whole peak, and bytes of any rank's peak without its state.
    limit: Floats
    dynamic_limit: float
    num_microbatches: int
    #: FUSED, SPLIT or MIXED.
    mode: int


class Staged(NamedTuple):
    """One partition and placement. ``S`` stages, ``E`` edges, ``P`` directed pairs of ranks.

    A node of the search has ``counts``: how often F, gradient ops, I and W of every stage have run (``4 S``), and how
    many messages left on every directed edge (``2 E``, edge by edge, activation before gradient). And it has ``times``:
    when each rank (``R``) and pair (``P``) is free, when each microbatch's message arrives and, if it did not leave
    yet, when it was made (twice ``2 E M``), when the last op started, and what each rank's last op uses while it runs.
    """

    rank: Ints
    #: ``(S, 4)`` seconds of F, I, W, B.
    duration: Floats
    activation: Floats
    freed: Floats
    stash: Floats
    workspace: Floats
    source: Ints
    destination: Ints
    crosses: Ints
    size: Floats
    #: ``(E, 2)`` seconds on the pair, latency, number of the pair.
    busy: Floats
    latency: Floats
    pair: Ints
    #: ``(P,)`` 1 if transfers of several edges must be put in order there.
    is_shared: Ints
    #: ``(R,)`` bytes that a rank has besides its state.
    room: Floats
    #: ``(S,)`` least seconds from the end of F, and of a gradient op, to the end of all that needs it.
    after_forward: Floats
    after_gradient: Floats
    #: ``(S,)`` least seconds of a gradient op, of a whole backward, and from its start to the end of all that needs it.
    gradient: Floats
    backward: Floats
    last_gradient: Floats
    #: ``(2 E,)`` least seconds from when a message frees its pair to the end of all that needs it.
    after_message: Floats
    #: Forwards (stage) and gradient ops (``S`` + stage), and directed edges, longest remaining path first.
    ops_by_path: Ints
    messages_by_path: Ints
    num_microbatches: int
    mode: int
    #: Where parts of ``counts`` and ``times`` begin; in order, and their lengths.
    inputs_at: int
    weights_at: int
    sent_at: int
    pairs_at: int
    arrivals_at: int
    made_at: int
    now_at: int
    usage_at: int
    num_counts: int
    num_times: int


def build_job(
    model: ModelGraph,
    cluster: Cluster,
    num_microbatches: int,
    limits: list[float],
    dynamic_limit: float,
    mode: int,
) -> Job:
    """Read the documents into arrays."""
    costs = [[layer.cost_on(device.type) for layer in model.layers] for device in cluster.devices]
    types = [cluster.device_types[device.type] for device in cluster.devices]
    links = cluster.link_table()
    position = {layer.name: index for index, layer in enumerate(model.layers)}
    skips = [(position[skip.from_layer], position[skip.to_layer]) for skip in model.skips]

    def sizes(field: str) -> Floats:
        return np.array([float(getattr(layer, field)) for layer in model.layers])

    return Job(
        seconds=np.array(
            [[(c.forward_s, c.backward_input_s, c.backward_weight_s) for c in row if c] for row in costs],
            dtype=np.float64,
        ),
        overhead=np.array([float(kind.op_overhead_s) for kind in types]),
        state=sizes("state_bytes"),
        activation=sizes("activation_bytes"),
        retained=sizes("retained"),
        stash=sizes("weight_stash_bytes"),
        workspace=sizes("workspace_bytes"),
        output=sizes("output_bytes"),
        skips=np.array(skips, dtype=np.int64).reshape(-1, 2),
        skip_bytes=np.array([float(skip.bytes) for skip in model.skips]),
        latency=np.array([[float(link.latency_s) for link in row] for row in links]),
        bandwidth=np.array([[float(link.bandwidth) for link in row] for row in links]),
        limit=np.array(limits, dtype=np.float64),
        dynamic_limit=float(dynamic_limit),
        num_microbatches=num_microbatches,
        mode=mode,
    )
