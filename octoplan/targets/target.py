"""`Target`: what an engine can run, and in which order it runs it. This one is our own runtime, which runs any plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from octoplan.baselines import BASELINES, Strategy
from octoplan.baselines.strategy import PartitionKind
from octoplan.ordering import OrderedPlan
from octoplan.tuner import Budget, Pricer, SearchTrace, search
from octoplan.tuner.budget import Priced
from octoplan_schemas import ModelGraph
from octoplan_solvers.problem import Assignment, PipelineProblem

PARTITIONS: tuple[PartitionKind, ...] = ("uniform", "balanced")


OnBest = Callable[[Priced], None]


class Target:
    """What a plan is compiled for. Each engine overrides what it restricts.

    Attributes
    ----------
    name:
        As in ``--target``.
    runs_any_placement:
        Whether the engine runs what exact methods may find: stages on any ranks, in any order.
    """

    name: ClassVar[str] = "octoplan"
    runs_any_placement: ClassVar[bool] = True

    def restrict(self, problem: PipelineProblem, model: ModelGraph) -> PipelineProblem:
        """Return the problem with the constraints that the engine adds to the job's own.

        Raises
        ------
        InfeasibleError
            If the engine cannot run the model at all, whatever the plan.
        """
        return problem

    def pricer(self, problem: PipelineProblem) -> Pricer:
        """Return what prices candidates as the engine would run them."""
        return Pricer(problem)

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
        """Return the best plan found that the engine runs and that fits, or None.

        Parameters
        ----------
        good_enough_s:
            A plan no longer than this is not improved any more.
        on_best, trace:
            Told of every improvement.
        """
        return search(
            pricer, starts, budget, seed=seed, good_enough_s=good_enough_s, on_best=on_best, trace=trace
        )

    def admits(self, strategy: Strategy, problem: PipelineProblem) -> bool:
        """Decide whether a baseline's placement and order are something that the engine runs."""
        return True

    def strategies(self, problem: PipelineProblem) -> list[Strategy]:
        """Return the baselines that no plan for this engine may be worse than."""
        return [
            strategy
            for name in BASELINES
            for partition in PARTITIONS
            if self.admits(strategy := Strategy(name, partition), problem)
        ]

    def as_run(self, plan: OrderedPlan) -> OrderedPlan | None:
        """Return a plan in the engine's own order; None if it does not fit into memory then."""
        return plan
