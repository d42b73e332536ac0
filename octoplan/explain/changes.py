"""What could be changed about a job: more memory, faster links, smaller layers, more stages, more microbatches.

Every change is a problem of its own, together with what the plan at hand becomes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from octoplan.compile_options import CompileOptions
from octoplan.compiler import limited_problem
from octoplan.explain.explanation import Diagnosis
from octoplan.explain.split_layer import LayerSplit
from octoplan.optimise import WarmStart
from octoplan.targets.megatron import MegatronTarget
from octoplan_schemas import Cluster, ModelGraph
from octoplan_solvers.ops import NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.problem import PipelineProblem

MEMORY_STEP_BYTES = 2**30
#: Ranks, and pairs of ranks, that get a change of their own: those that idle most for it.
_MOST_OF_A_KIND = 2
#: Microbatches from which twice as many would take too long to search.
_MANY_MICROBATCHES = 128


@dataclass(frozen=True)
class Job:
    """What a plan was compiled for."""

    model: ModelGraph
    cluster: Cluster
    options: CompileOptions
    problem: PipelineProblem


@dataclass(frozen=True)
class Change:
    """A changed problem.

    Attributes
    ----------
    name, text:
        A short name for scripts, and what is changed.
    model:
        Its layers are the changed problem's.
    translate:
        What is known of the job, as it stands in the changed problem.
    microbatch_factor:
        How many times as many microbatches the changed problem has.
    """

    name: str
    text: str
    problem: PipelineProblem
    model: ModelGraph
    translate: Callable[[WarmStart], WarmStart] = lambda known: known
    microbatch_factor: int = 1


def changes_worth_trying(job: Job, diagnosis: Diagnosis) -> list[Change]:
    """Return the changes that could be worth something to a plan with this diagnosis."""
    families = (_memory, _links, _layer, _overhead, _options)
    return [change for family in families for change in family(job, diagnosis)]


def _memory(job: Job, diagnosis: Diagnosis) -> Iterator[Change]:
    """More room on the ranks that idle for it, on all ranks, and no limit at all."""
    problem = job.problem
    limits = problem.memory_limit_bytes
    if np.isfinite(limits).any():
        worst = sorted(diagnosis.memory, key=lambda rank: -rank.waiting_s)
        for entry in worst[:_MOST_OF_A_KIND]:
            if entry.waiting_s > 0 and problem.num_ranks > 1:
                more = limits + MEMORY_STEP_BYTES * (np.arange(problem.num_ranks) == entry.rank)
                text = f"one more GiB on rank {entry.rank}"
                yield Change(
                    f"memory-{entry.rank}", text, replace(problem, memory_limit_bytes=more), job.model
                )
        more = replace(problem, memory_limit_bytes=limits + MEMORY_STEP_BYTES)
        yield Change("memory-all", "one more GiB on every rank", more, job.model)
    if np.isfinite(problem.dynamic_limit_bytes):
        more = replace(problem, dynamic_limit_bytes=problem.dynamic_limit_bytes + MEMORY_STEP_BYTES)
        yield Change("memory-all", "one more GiB for activations on every rank", more, job.model)
    if np.isfinite(limits).any() or np.isfinite(problem.dynamic_limit_bytes):
        free = replace(
            problem, memory_limit_bytes=np.full(problem.num_ranks, np.inf), dynamic_limit_bytes=np.inf
        )
        yield Change("memory-unlimited", "no limit of memory", free, job.model)


def _links(job: Job, diagnosis: Diagnosis) -> Iterator[Change]:
    """Twice the bandwidth and half the latency, where ranks idle for transfers, and everywhere."""
    problem = job.problem
    if problem.num_ranks < 2:
        return
    late = [(link.source, link.destination) for link in diagnosis.links if link.waiting_s > 0]
    pairs = list(dict.fromkeys((min(pair), max(pair)) for pair in late))
    for one, other in pairs[:_MOST_OF_A_KIND] if problem.num_ranks > 2 else []:
        chosen = np.zeros((problem.num_ranks, problem.num_ranks), dtype=np.bool_)
        chosen[one, other] = chosen[other, one] = True
        text = f"the link between ranks {one} and {other} twice as fast"
        yield Change(f"link-{one}-{other}", text, _with_faster_links(problem, chosen), job.model)
    if diagnosis.links:
        faster = _with_faster_links(problem, np.ones((problem.num_ranks, problem.num_ranks), dtype=np.bool_))
        yield Change("links", "every link twice as fast", faster, job.model)


def _with_faster_links(problem: PipelineProblem, chosen: np.ndarray) -> PipelineProblem:
    return replace(
        problem,
        bandwidth=np.where(chosen, 2 * problem.bandwidth, problem.bandwidth),
        latency_s=np.where(chosen, problem.latency_s / 2, problem.latency_s),
    )


def _layer(job: Job, diagnosis: Diagnosis) -> Iterator[Change]:
    """The heaviest layer in two halves."""
    problem = job.problem
    split = LayerSplit(int(np.argmax(problem.layer_time_s.min(axis=0))))

    def translate(known: WarmStart) -> WarmStart:
        return WarmStart(
            tuple(split.candidate(candidate) for candidate in known.candidates),
            tuple((split.assignment(assignment), order) for assignment, order in known.orders),
        )

    text = f"layer {diagnosis.heaviest_layer.name} split in two"
    yield Change("split-layer", text, split.problem(problem), split.model(job.model), translate)


def _overhead(job: Job, diagnosis: Diagnosis) -> Iterator[Change]:
    """Ops that cost nothing but their layers' time."""
    problem = job.problem
    if problem.op_overhead_s.any():
        free = replace(problem, op_overhead_s=np.zeros(problem.num_ranks))
        yield Change("no-overhead", "no overhead per op", free, job.model)


def _options(job: Job, diagnosis: Diagnosis) -> Iterator[Change]:
    """More stages per rank, a split backward, and twice the microbatches."""
    options = job.options

    def changed(name: str, text: str, **fields: object) -> Change:
        other = replace(options, **fields)  # type: ignore[arg-type]
        return Change(name, text, limited_problem(job.model, job.cluster, other), job.model)

    most = options.max_stages_per_device
    # Every other rank holds at least one layer.
    most_possible = job.problem.num_layers - job.problem.num_ranks + 1
    if job.problem.max_stages_per_rank == most < most_possible:
        text = f"up to {most + 1} stages per rank, not {most}"
        yield changed("more-stages", text, max_stages_per_device=most + 1)
    if options.backward == "fused":
        split = changed("split-backward", "the backward split in two ops", backward="split")
        if split.problem.split_backward:
            yield split
    if options.microbatches < _MANY_MICROBATCHES:
        text = f"{2 * options.microbatches} microbatches, not {options.microbatches}"
        more = changed("more-microbatches", text, microbatches=2 * options.microbatches)
        is_fixed = options.target == MegatronTarget.name
        yield replace(more, translate=_nothing if is_fixed else _done_twice, microbatch_factor=2)


def _nothing(known: WarmStart) -> WarmStart:
    """Begin anew: the engine runs no order but its own, which twice the microbatches change."""
    return WarmStart()


def _done_twice(known: WarmStart) -> WarmStart:
    """Return plans for twice the microbatches: everything once, and then once more."""
    return WarmStart(
        known.candidates, tuple((assignment, run_twice(order)) for assignment, order in known.orders)
    )


def run_twice(order: Order) -> Order:
    """Return the order that runs every rank's ops twice, with new microbatches the second time."""
    num_microbatches = order.num_microbatches
    ops: list[IntArray] = []
    for rank in range(order.num_ranks):
        slot, kind = np.divmod(order.of_rank(rank), NUM_KINDS)
        stage, microbatch = np.divmod(slot, num_microbatches)
        for turn in (0, 1):
            again = microbatch + turn * num_microbatches
            ops.append((stage * 2 * num_microbatches + again) * NUM_KINDS + kind)
    return Order(np.concatenate(ops), 2 * order.rank_begin, 2 * num_microbatches)
