"""``--target megatron``: Megatron-LM's pipeline, in which only the partition is free.

Stages are dealt out in a loop, every rank holds as many as the others, the backward is fused, and the order is 1F1B,
or interleaved 1F1B with several stages per rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from octoplan.baselines import Strategy, baseline, build_schedule
from octoplan.baselines.schedule import loop_placement
from octoplan.errors import InfeasibleError
from octoplan.ordering import OrderedPlan
from octoplan.targets.megatron_layers import megatron_layers
from octoplan.targets.partition_search import FixedOrder, PartitionWalk, cost_of
from octoplan.targets.race import race
from octoplan.targets.restrictions import equal_stages, in_one_stage, skips_in_one_stage
from octoplan.targets.starts import with_placements
from octoplan.targets.target import PARTITIONS, OnBest, Target
from octoplan.tuner import Budget, Pricer, SearchTrace
from octoplan_schemas import ModelGraph
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment, PipelineProblem

ONE_STAGE, SEVERAL_STAGES = "1f1b", "interleaved-1f1b"


def stages_per_rank(num_ranks: int, num_microbatches: int, most: int) -> range:
    """Return the numbers of stages per rank that Megatron takes: several need ranks, and a microbatch for each."""
    return range(1, (most if 1 < num_ranks <= num_microbatches else 1) + 1)


def megatron_order(num_ranks: int, num_microbatches: int, count: int) -> Order:
    """Return Megatron's own order for so many stages per rank."""
    name = ONE_STAGE if count == 1 else SEVERAL_STAGES
    schedule = build_schedule(name, num_ranks, num_microbatches, count)
    return Order.from_lists(schedule.orders, num_microbatches)


class MegatronTarget(Target):
    """Megatron-LM with ``--pipeline-model-parallel-layout`` or ``--hybrid-layer-pattern``."""

    name: ClassVar[str] = "megatron"
    runs_any_placement: ClassVar[bool] = False

    def restrict(self, problem: PipelineProblem, model: ModelGraph) -> PipelineProblem:
        """Fuse the backward, ask for equal stages, and keep embedding and head whole."""
        if problem.constraints.max_in_flight:
            raise InfeasibleError("megatron's order does not look at max_in_flight; leave the constraint out")
        layers = megatron_layers(model.layers)
        problem = in_one_stage(skips_in_one_stage(problem, self.name), [layers.embedding, layers.head])
        counts = stages_per_rank(problem.num_ranks, problem.num_microbatches, problem.max_stages_per_rank)
        return replace(equal_stages(problem), split_backward=False, max_stages_per_rank=counts[-1])

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
        """Race the numbers of stages per rank against each other."""
        best_s = float("inf")

        def tell(plan: OrderedPlan, dimension: str) -> None:
            nonlocal best_s
            if plan.makespan_s < best_s:
                best_s = plan.makespan_s
                at = budget.elapsed_s if budget.max_evaluations is None else float(budget.evaluations)
                trace.entries.append((at, dimension, best_s))
                on_best(plan)

        walks = []
        for number, (fixed, own) in enumerate(_orders_with_starts(pricer.problem, list(starts))):
            walks.append(PartitionWalk(fixed, own, budget, seed + 10_000 * number, tell))
        if not walks:
            return None
        best = race(walks, budget, until=1.0, good_enough_s=good_enough_s)[0].best
        if best is None and not pricer.known:
            raise InfeasibleError(_why_too_large(min((walk.closest for walk in walks), key=cost_of)))
        return best

    def admits(self, strategy: Strategy, problem: PipelineProblem) -> bool:
        """Decide whether a baseline's order is Megatron's own."""
        if strategy.name not in (ONE_STAGE, SEVERAL_STAGES):
            return False
        count = strategy.stages_per_rank or baseline(strategy.name).stages_per_rank
        return count in stages_per_rank(problem.num_ranks, problem.num_microbatches, count)

    def strategies(self, problem: PipelineProblem) -> list[Strategy]:
        """Return 1F1B and interleaved 1F1B with every number of stages per rank, over both partitions."""
        counts = stages_per_rank(problem.num_ranks, problem.num_microbatches, problem.max_stages_per_rank)
        return [
            Strategy(ONE_STAGE, partition) if count == 1 else Strategy(SEVERAL_STAGES, partition, count)
            for count in counts
            for partition in PARTITIONS
        ]


def _why_too_large(closest: OrderedPlan) -> str:
    excess = closest.excess_bytes()
    rank = int(excess.argmax())
    return (
        f"no partition was found that fits in Megatron's order: at best, rank {rank} peaks at "
        f"{closest.simulation.memory.peak_bytes[rank]:,.0f} bytes, {excess[rank]:,.0f} more than its limit of "
        f"{closest.staged.memory_limit_bytes[rank]:,.0f}; raise --memory-limit, use more devices, or take another "
        "--target, whose orders can hold less"
    )


def _orders_with_starts(
    problem: PipelineProblem, starts: Sequence[Assignment]
) -> list[tuple[FixedOrder, list[Assignment]]]:
    """Return Megatron's orders, each with the partitions to start from; orders without any are left out."""
    num_ranks, num_microbatches = problem.num_ranks, problem.num_microbatches
    most = min(problem.max_stages_per_rank, problem.num_layers // num_ranks)
    found = []
    for count in stages_per_rank(num_ranks, num_microbatches, most):
        ranks = loop_placement(num_ranks, count)
        own = with_placements(problem, starts, [ranks])
        if own:
            order = megatron_order(num_ranks, num_microbatches, count)
            found.append((FixedOrder(problem, ranks, order), own))
    return found
