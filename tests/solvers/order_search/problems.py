"""Small ordering problems, a brute force over all of their orders, and a price for an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np

from octoplan.ordering import run_order
from octoplan_schemas import InputError
from octoplan_solvers.order import Order
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.staged import StagedProblem, build_staged

#: (stage, letter, microbatch)
NamedOp = tuple[int, str, int]


def evaluator(staged: StagedProblem) -> Callable[[Order], float | None]:
    """Price by the exact simulator: None if an order breaks a limit."""

    def evaluate(order: Order) -> float | None:
        plan = run_order(staged, order)
        return None if plan.excess_bytes().any() else plan.makespan_s

    return evaluate


def equal_sizes_problem(
    num_ranks: int,
    num_microbatches: int,
    room: float,
    *,
    forward: float | Sequence[float] = 1.0,
    backward_input: float | Sequence[float] = 1.0,
    backward_weight: float | Sequence[float] = 1.0,
    latency: float = 0.1,
    placement: Sequence[int] | None = None,
) -> StagedProblem:
    """One unit of activation per stage and microbatch from F to the end of W; nothing else takes memory."""
    ranks = list(range(num_ranks)) if placement is None else list(placement)
    return one_layer_per_stage(
        ranks,
        num_microbatches,
        times=np.stack(
            [
                np.broadcast_to(np.asarray(t, float), len(ranks))
                for t in (forward, backward_input, backward_weight)
            ]
        ),
        latency=np.full((num_ranks, num_ranks), latency),
        limit=np.full(num_ranks, float(room)),
        activation=np.ones(len(ranks)),
        retained=np.ones(len(ranks)),
    )


def one_layer_per_stage(
    ranks: Sequence[int],
    num_microbatches: int,
    *,
    times: np.ndarray,
    latency: np.ndarray,
    limit: np.ndarray,
    activation: np.ndarray,
    retained: np.ndarray,
    stash: np.ndarray | None = None,
    workspace: np.ndarray | None = None,
    output: np.ndarray | None = None,
    bandwidth: np.ndarray | None = None,
    skips: Sequence[tuple[int, int, float]] = (),
    overhead: float = 0.0,
    split: bool = True,
) -> StagedProblem:
    """One layer per stage."""
    num_stages, num_ranks = len(ranks), max(ranks) + 1
    zero = np.zeros(num_stages)
    problem = PipelineProblem(
        forward_s=times[0][None].copy(),
        backward_input_s=times[1][None].copy(),
        backward_weight_s=times[2][None].copy(),
        rank_type=np.zeros(num_ranks, np.int64),
        op_overhead_s=np.full(num_ranks, overhead),
        state_bytes=zero,
        activation_bytes=activation,
        retained_bytes=retained,
        weight_stash_bytes=zero if stash is None else stash,
        workspace_bytes=zero if workspace is None else workspace,
        output_bytes=zero if output is None else output,
        skip_source=np.array([skip[0] for skip in skips], dtype=np.int64),
        skip_destination=np.array([skip[1] for skip in skips], dtype=np.int64),
        skip_bytes=np.array([skip[2] for skip in skips], dtype=np.float64),
        latency_s=latency,
        bandwidth=np.full((num_ranks, num_ranks), np.inf) if bandwidth is None else bandwidth,
        num_microbatches=num_microbatches,
        split_backward=split,
        max_stages_per_rank=num_stages,
        memory_limit_bytes=limit,
    )
    return build_staged(problem, Assignment.from_sizes([1] * num_stages, ranks))


#: Rank of each stage, microbatches, split backward: few enough orders to try them all.
_SHAPES = (
    ((0, 1), 2, True),
    ((0, 1), 2, True),
    ((0, 1), 3, False),
    ((0, 1, 2), 2, False),
    ((0, 1, 0), 2, False),
    ((0, 1, 1), 2, False),
    ((0, 1, 0), 1, True),
)


#: Of these, and others, such that every order of messages can be tried as well.
FEW_ORDERS = (
    ((0, 1), 2, True),
    ((0, 1), 2, False),
    ((0, 1, 0), 1, True),
    ((0, 1, 1), 1, True),
    ((0, 1, 2), 1, True),
)


def random_problem(
    random: np.random.Generator,
    *,
    whole: bool,
    no_time: float = 0.0,
    shapes: Sequence[tuple[tuple[int, ...], int, bool]] = _SHAPES,
) -> StagedProblem:
    """Draw a problem with every kind of cost; times are multiples of a tenth if ``whole``.

    A share ``no_time`` of the ops takes no time at all.
    """
    ranks, num_microbatches, split = shapes[random.integers(len(shapes))]
    stages, num_ranks = len(ranks), max(ranks) + 1

    def draw(low: int, high: int, *shape: int) -> np.ndarray:
        tenths = random.integers(low, high + 1, shape)
        return tenths / 10 if whole else tenths / 10 + random.random(shape) * 0.1

    activation = random.integers(1, 4, stages).astype(float)
    output = random.integers(0, 4, stages).astype(float)
    staged = one_layer_per_stage(
        ranks,
        num_microbatches,
        times=draw(2, 20, 3, stages) * (random.random((3, stages)) >= no_time),
        latency=draw(0, 5, num_ranks, num_ranks),
        limit=np.full(num_ranks, np.inf),
        activation=activation,
        retained=np.floor(activation * random.choice([0.0, 0.5, 1.0])),
        stash=random.integers(0, 3, stages).astype(float),
        workspace=random.integers(0, 2, stages).astype(float),
        output=output,
        bandwidth=np.full((num_ranks, num_ranks), random.choice([1.0, 2.0, 10.0])),
        skips=[(0, 2, 2.0)] if stages > 2 and random.random() < 0.5 else (),
        overhead=float(random.choice([0.0, 0.3])),
        split=split,
    )
    return staged.with_limit(random.integers(3, 14) if random.random() < 0.8 else np.inf)


def all_orders(staged: StagedProblem) -> Iterator[Order]:
    """Yield every order of every rank's ops that its own data dependencies allow (deadlocks included)."""
    per_rank = [list(_sequences(staged, rank)) for rank in range(staged.num_ranks)]
    for sequences in product(*per_rank):
        yield Order.from_lists(sequences, staged.num_microbatches)


def _sequences(staged: StagedProblem, rank: int) -> Iterator[list[NamedOp]]:
    stages = np.flatnonzero(staged.stage_rank == rank).tolist()
    slots = [(stage, m) for stage in stages for m in range(staged.num_microbatches)]
    for backwards in product(["B", "IW"] if staged.split_backward else ["B"], repeat=len(slots)):
        ops = {
            (stage, kind, m) for (stage, m), own in zip(slots, backwards, strict=True) for kind in "F" + own
        }
        yield from _linear_extensions(ops, _precedences(staged, ops))


def _precedences(staged: StagedProblem, ops: set[NamedOp]) -> dict[NamedOp, set[NamedOp]]:
    """For every op, what must come before it on the same rank."""
    before: dict[NamedOp, set[NamedOp]] = {op: set() for op in ops}
    for stage, kind, m in ops:
        if kind in "IB":
            before[stage, kind, m].add((stage, "F", m))
        if kind == "W":
            before[stage, kind, m].add((stage, "I", m))
        for source, destination in zip(staged.edge_source, staged.edge_destination, strict=True):
            if kind == "F" and destination == stage:
                before[stage, kind, m].add((int(source), "F", m))
            if kind in "IB" and source == stage:
                before[stage, kind, m] |= {(int(destination), "I", m), (int(destination), "B", m)}
        before[stage, kind, m] &= ops
    return before


def _linear_extensions(
    ops: set[NamedOp], before: dict[NamedOp, set[NamedOp]], done: tuple[NamedOp, ...] = ()
) -> Iterator[list[NamedOp]]:
    if len(done) == len(ops):
        yield list(done)
    for op in sorted(ops - set(done)):
        if before[op] <= set(done):
            yield from _linear_extensions(ops, before, (*done, op))


def brute_force(staged: StagedProblem, keep: Callable[[Order], bool] = lambda order: True) -> float | None:
    """Return the shortest makespan of all orders of ops, None if none keeps the limits."""
    return _shortest(staged, filter(keep, all_orders(staged)))


def brute_force_with_messages(
    staged: StagedProblem, keep: Callable[[Order], bool] = lambda order: True
) -> float | None:
    """Return the shortest makespan of all orders of ops and messages; ``keep`` tells which orders are allowed."""
    return _shortest(
        staged,
        (
            replace(order, messages=messages)
            for order in all_orders(staged)
            if keep(order)
            for messages in _message_orders(staged)
        ),
    )


def _message_orders(staged: StagedProblem) -> Iterator[np.ndarray]:
    """Yield every order of the messages of every directed rank pair."""
    by_pair: list[list[int]] = [[] for _ in staged.pairs]
    for directed_edge, pair in enumerate(staged.edge_pair.reshape(-1).tolist()):
        if pair >= 0:
            by_pair[pair] += [
                directed_edge * staged.num_microbatches + m for m in range(staged.num_microbatches)
            ]
    for sequences in product(*(permutations(own) for own in by_pair)):
        yield np.array([code for own in sequences for code in own], dtype=np.int64)


def _shortest(staged: StagedProblem, orders: Iterator[Order]) -> float | None:
    evaluate = evaluator(staged)
    best: float | None = None
    for order in orders:
        try:
            makespan = evaluate(order)
        except InputError:
            continue  # waits on itself
        if makespan is not None and (best is None or makespan < best):
            best = makespan
    return best
