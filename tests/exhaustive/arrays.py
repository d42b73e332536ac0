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
    """One partition and placement. ``S`` stages, ``E`` edges, ``D = 2 E`` directed edges, ``P`` directed rank pairs.

    F of a stage is *step* s, its gradient op (B or I) step S + s; a directed edge is 2 e for activations, 2 e + 1 for
    gradients. A node of the search has ``counts``: how often each step, I and W have run (``4 S``), and how many
    messages left on each directed edge (``D``). And it has ``times``: when each rank (``R``) and pair (``P``) is free,
    when each microbatch's message arrives and, if it did not leave yet, when it was made (twice ``D M``), when the last
    op started, and what each rank's last op uses while it runs (``R``).
    """

    rank: Ints
    #: ``(S, 4)`` seconds of F, I, W, B.
    duration: Floats
    #: ``(S,)`` bytes of a microbatch: from F on, of these up to the end of I, from then to W, and during an op.
    activation: Floats
    freed: Floats
    stash: Floats
    workspace: Floats
    #: ``(R,)`` bytes that a rank has besides its state.
    room: Floats
    #: ``(2 S,)`` least seconds of a step, from its end to the end of all that needs it, and from the start of the last
    #: of its kind; ``(S,)`` least seconds of a whole backward.
    seconds: Floats
    after: Floats
    last: Floats
    backward: Floats
    #: ``(D,)`` the steps that make and use a message, whether it crosses ranks, its bytes, seconds on the pair and
    #: latency, its pair, whether it has to be put in order there, and least seconds from when the pair is free.
    maker: Ints
    user: Ints
    crosses: Ints
    size: Floats
    busy: Floats
    latency: Floats
    pair: Ints
    is_ordered: Ints
    after_message: Floats
    #: Steps and directed edges, longest remaining path first.
    steps_by_path: Ints
    messages_by_path: Ints
    num_microbatches: int
    mode: int
    #: Where parts of ``counts`` and ``times`` begin, and their lengths.
    inputs_at: int
    weights_at: int
    sent_at: int
    arrivals_at: int
    made_at: int
    now_at: int
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
