"""``--target torchtitan``: torch's engine as torchtitan drives it, from a schedule without communication.

Torchtitan deals stages out in a loop, or in a V with two stages per rank; every rank holds as many stages as the
others, and a stage is made of whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from octoplan.baselines.schedule import loop_placement, v_placement
from octoplan.ordering import OrderedPlan
from octoplan.targets.placement_race import search_placements
from octoplan.targets.restrictions import equal_stages, whole_blocks
from octoplan.targets.starts import with_placements
from octoplan.targets.target import OnBest
from octoplan.targets.torch_engine import TorchTarget
from octoplan.tuner import Budget, Pricer, SearchTrace
from octoplan_schemas import ModelGraph
from octoplan_solvers.problem import Assignment, PipelineProblem


def placements(num_ranks: int, most_stages_per_rank: int) -> list[tuple[int, ...]]:
    """Return the placements that torchtitan builds: loops, and the V where two stages per rank are allowed."""
    loops = [loop_placement(num_ranks, count) for count in range(1, most_stages_per_rank + 1)]
    v_shaped = [v_placement(num_ranks)] if most_stages_per_rank >= 2 and num_ranks > 1 else []
    return loops + v_shaped


class TorchtitanTarget(TorchTarget):
    """Torchtitan's pipeline parallelism with ``pipeline_parallel_schedule_csv``."""

    name: ClassVar[str] = "torchtitan"
    runs_any_placement: ClassVar[bool] = False

    def restrict(self, problem: PipelineProblem, model: ModelGraph) -> PipelineProblem:
        """Ask for equal stages of whole blocks, with both ends of every skip in one."""
        return equal_stages(whole_blocks(super().restrict(problem, model)))

    def search(
        self,
        pricer: Pricer,
        starts: Iterable[Assignment],
        budget: Budget,
        *,
        seed: int,
        good_enough_s: float,
        on_best: OnBest,
        trace: SearchTrace,
    ) -> OrderedPlan | None:
        """Race the placements against each other."""
        problem = pricer.problem
        most = min(problem.max_stages_per_rank, problem.num_layers // problem.num_ranks)
        allowed = with_placements(problem, list(starts), placements(problem.num_ranks, most))
        return search_placements(
            pricer, allowed, budget, seed=seed, good_enough_s=good_enough_s, on_best=on_best, trace=trace
        )
