"""What is slept and what is predicted: the plan's own costs, scaled, and what this machine adds to them.

An emulated op sleeps for its layers' time; what the interpreter does around it is real and costs time of its own.
A prediction that is to be compared with the measurement adds that cost to every op, and the transport's own latency
to every message: `MachineCosts`, as ``octoplan run --calibrate`` measures and writes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from octoplan_schemas import Cluster, InputError, OpWord, Plan, parse_word

#: Scale "auto" makes the mean op this long, in seconds: long against what the machine adds.
MEAN_OP_S = 0.05


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """What this machine adds, in seconds: to every compute op, and to every message."""

    op_overhead_s: float = 0.0
    latency_s: float = 0.0

    @classmethod
    def of(cls, cluster: Cluster | None, plan: Plan) -> MachineCosts:
        """Read a calibrated cluster; nothing is added for the cluster that the plan itself was made for."""
        if cluster is None or cluster.sha256() == plan.cluster.sha256:
            return cls()
        overheads = [cluster.device_types[device.type].op_overhead_s for device in cluster.devices]
        return cls(max(overheads), float(cluster.links.intra_node.latency_s))


@dataclass(frozen=True, slots=True)
class EmulatedCosts:
    """The plan's costs times a scale.

    Attributes
    ----------
    ops:
        For every stage, seconds of each kind of op.
    transfers:
        For every directed pair of stages on different ranks, seconds that a message keeps the link busy, and from
        then to its arrival.
    scale:
        Factor on the plan's times.
    """

    ops: tuple[dict[str, float], ...]
    transfers: dict[tuple[int, int], tuple[float, float]]
    scale: float

    @classmethod
    def of(cls, plan: Plan, scale: float | None) -> EmulatedCosts:
        """Read a plan's recorded costs; scale None makes the mean op `MEAN_OP_S` long.

        Raises
        ------
        InputError
            If the plan records no costs.
        """
        predicted = plan.predicted
        if len(predicted.stages) != len(plan.stages):
            raise InputError(
                "the plan does not record what its stages cost, so nothing says how long to wait; compile it "
                "again with this version",
                field="predicted.stages",
            )
        ops = tuple(
            {
                "F": cost.forward_s,
                "I": cost.backward_input_s,
                "W": cost.backward_weight_s,
                "B": cost.backward_s,
            }
            for cost in predicted.stages
        )
        transfers: dict[tuple[int, int], tuple[float, float]] = {}
        for edge in predicted.edges:
            ends = edge.from_stage, edge.to_stage
            transfers[ends] = (edge.transfer_s[0], edge.latency_s[0])
            transfers[ends[::-1]] = (edge.transfer_s[1], edge.latency_s[1])
        unscaled = cls(ops, transfers, 1.0)
        return unscaled.scaled(_auto_scale(plan, unscaled) if scale is None else scale)

    def scaled(self, factor: float) -> EmulatedCosts:
        """Return the costs times a factor."""
        ops = tuple({kind: factor * seconds for kind, seconds in stage.items()} for stage in self.ops)
        transfers = {
            ends: (factor * busy, factor * latency) for ends, (busy, latency) in self.transfers.items()
        }
        return EmulatedCosts(ops, transfers, factor * self.scale)

    def on(self, machine: MachineCosts) -> EmulatedCosts:
        """Return the costs with what the machine adds."""
        ops = tuple(
            {kind: seconds + machine.op_overhead_s for kind, seconds in stage.items()} for stage in self.ops
        )
        transfers = {
            ends: (busy, latency + machine.latency_s) for ends, (busy, latency) in self.transfers.items()
        }
        return EmulatedCosts(ops, transfers, self.scale)

    def duration_s(self, word: OpWord) -> float:
        """Return the seconds of a compute op."""
        return self.ops[word.stage][word.kind]

    def link_s(self, source: int, destination: int) -> tuple[float, float]:
        """Return busy seconds and latency of a message between two stages."""
        return self.transfers[source, destination]


def _auto_scale(plan: Plan, costs: EmulatedCosts) -> float:
    words = [parse_word(word) for program in plan.programs for word in program]
    durations = [costs.duration_s(word) for word in words if word.is_compute]
    mean_s = sum(durations) / len(durations)
    return MEAN_OP_S / mean_s if mean_s > 0 else 1.0
