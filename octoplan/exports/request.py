"""`ExportRequest`: a plan that passed the check, and what else the exporters look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octoplan_schemas import Cluster, InputError, Layer, ModelGraph, Plan, ProgramIndex, stage_edges
from octoplan_solvers.ops import FORWARD, KIND_LETTERS


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """One export.

    Attributes
    ----------
    index:
        The plan's programs, parsed.
    path:
        The file asked for; an exporter that writes two puts the second one beside it.
    """

    plan: Plan
    index: ProgramIndex
    model: ModelGraph | None
    cluster: Cluster | None
    path: Path

    @property
    def stage_ranks(self) -> tuple[int, ...]:
        """Rank of every stage."""
        return tuple(stage.rank for stage in self.plan.stages)

    def layers(self, why: str) -> tuple[Layer, ...]:
        """Return the model's layers, or ask for the model."""
        if self.model is None:
            raise InputError(f"is needed: {why}; give --model", field="model")
        return self.model.layers

    def skips(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of stages that hand tensors over without being neighbours."""
        if self.model is not None:
            position = self.model.layer_index()
            layers = [(position[skip.from_layer], position[skip.to_layer]) for skip in self.model.skips]
            edges = stage_edges([stage.layers for stage in self.plan.stages], layers)
            yield from (edge for edge in edges if edge[1] - edge[0] > 1)
        for source, destination, _ in self.index.sends:
            if abs(source - destination) > 1:
                yield min(source, destination), max(source, destination)

    def last_forwards(self) -> list[int]:
        """Return the microbatches of the last stage's forwards, in program order."""
        last = len(self.plan.stages) - 1
        order = self.index.compute_order[self.plan.stages[-1].rank]
        return [
            microbatch for stage, kind, microbatch in order if (stage, kind) == (last, KIND_LETTERS[FORWARD])
        ]

    def title(self) -> str:
        """Return one line of plain text about the plan, for comments."""
        plan = self.plan
        text = (
            f"{plan.model.name} on {plan.cluster.name}: {plan.num_ranks} ranks, {len(plan.stages)} stages, "
            f"{plan.job.microbatches} microbatches, predicted {plan.predicted.makespan_s:.6g} s"
        )
        return plain_line(text)


def plain_line(text: str) -> str:
    """Return a text as one line of printable ASCII: names come from strangers, and a comment must stay one."""
    line = " ".join(text.split())
    return "".join(character if " " <= character <= "~" else "?" for character in line)
