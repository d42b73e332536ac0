"""``--target torch``: torch's `_PipelineScheduleRuntime`, which runs any order on any placement, with three catches.

Only neighbouring stages hand tensors over, losses are filed in the order in which the last stage's forwards come, and
the first stage's I does nothing: its W is the whole backward. The first is a constraint, the second a matter of
numbering, and the third is priced: plans for torch have a B there.
"""

from __future__ import annotations

from typing import ClassVar

from octoplan.engine_order import as_torch_runs
from octoplan.ordering import OrderedPlan
from octoplan.targets.restrictions import skips_in_one_stage
from octoplan.targets.target import Target
from octoplan.tuner import Pricer
from octoplan_schemas import ModelGraph
from octoplan_solvers.problem import PipelineProblem


class TorchTarget(Target):
    """Torch's own pipeline engine, fed with a schedule that has its communication in it."""

    name: ClassVar[str] = "torch"

    def restrict(self, problem: PipelineProblem, model: ModelGraph) -> PipelineProblem:
        """Keep both ends of every skip in one stage."""
        return skips_in_one_stage(problem, self.name)

    def pricer(self, problem: PipelineProblem) -> Pricer:
        """Price the first stage's backward as one op."""
        return Pricer(problem, fuse_first_stage=True)

    def as_run(self, plan: OrderedPlan) -> OrderedPlan | None:
        """Fuse the first stage's backward, and number microbatches by the last stage's forwards."""
        return as_torch_runs(plan)
