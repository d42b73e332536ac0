"""From a building block to complete orders: repeat, squeeze, reorder, and put W into the bubbles.

The block, repeated, fixes the planned order of F and I on every rank. Replaying it in time, with every op as
early as its inputs allow, squeezes out the idle slots. Whenever a rank would idle, it may run

* an F or I from a little later in its plan (if ``reorder``), as long as the rest of the plan still fits into
  the memory limit, and otherwise
* the oldest W; a W also goes before an F that memory has no room for.

Work grows linearly with the ops, apart from the logarithm of a heap over ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from octoplan.baselines.building_block import BuildingBlock
from octoplan.baselines.pricing import makespan
from octoplan.baselines.schedule import Op, RankOrder, StageCosts

#: (step, microbatch): steps 0, 1, ... are F of the stages in order, then come their I in reverse.
_Step = tuple[int, int]
#: How far ahead in its plan, in ops, a rank looks for something to do: four microbatches of two stages.
_WINDOW = 16
_HEAD_FIRST, _THEN_BACKWARD, _THEN_FORWARD, _THEN_WEIGHT = range(4)


def zero_bubble_orders(
    block: BuildingBlock,
    placement: tuple[int, ...],
    num_microbatches: int,
    costs: StageCosts | None,
    published: Sequence[tuple[RankOrder, ...]] = (),
) -> tuple[RankOrder, ...]:
    """Return the best orders that the block leads to, priced with ``costs`` (by default: equal).

    The published methods plan with equal costs. With costs at hand, W are also placed by these, and the
    better plan is kept. Methods with two stages per rank may reorder. Orders that are ``published`` as such
    compete too, and win a tie.
    """
    equal = StageCosts.equal(len(placement))
    assumed = [equal] if costs is None else [equal, costs]
    reorder = [False, True] if len(placement) > max(placement) + 1 else [False]
    replayed = [fill(block, placement, num_microbatches, a, reorder=r) for a in assumed for r in reorder]
    return min([*published, *replayed], key=lambda orders: makespan(orders, placement, costs or equal))


def fill(
    block: BuildingBlock,
    placement: tuple[int, ...],
    num_microbatches: int,
    costs: StageCosts,
    *,
    reorder: bool,
) -> tuple[RankOrder, ...]:
    """Replay a repeated block in time; W go into idle time and where memory demands them."""
    return _Replay(block, placement, num_microbatches, costs, reorder).run()


@dataclass(slots=True)
class _Rank:
    """One rank in the replay."""

    plan: list[_Step]
    position: dict[_Step, int]
    steps: list[int]
    order: list[Op] = field(default_factory=list)
    free_s: float = 0.0
    #: First place in the plan that is not done, and one past the last that is.
    head: int = 0
    reach: int = 0
    #: Activations held, and those of them whose I is still to come.
    live: int = 0
    before_backward: int = 0
    #: (stage, microbatch) that wait for W, oldest first.
    weights: deque[tuple[int, int]] = field(default_factory=deque)
    version: int = 0


#: (start, priority, step); no step means W.
_Choice = tuple[float, int, _Step | None]


class _Replay:
    def __init__(
        self,
        block: BuildingBlock,
        placement: tuple[int, ...],
        num_microbatches: int,
        costs: StageCosts,
        reorder: bool,
    ) -> None:
        self.max_live = block.max_live
        self.num_microbatches = num_microbatches
        self.placement = placement
        self.costs = costs
        self.reorder = reorder
        self.num_stages = len(placement)
        self.duration = [*costs.forward_s, *reversed(costs.backward_input_s)]
        num_steps = 2 * self.num_stages
        self.done = [0] * num_steps
        self.arrival = [[0.0 if step == 0 else inf] * num_microbatches for step in range(num_steps)]
        self.ranks = [self._rank(block, rank) for rank in range(max(placement) + 1)]
        self.heap: list[tuple[float, int, int, int, _Step | None]] = []

    def _rank(self, block: BuildingBlock, rank: int) -> _Rank:
        steps = [step for step in range(2 * self.num_stages) if self.placement[self.stage_of(step)] == rank]
        timed = [
            (block.starts[step] + block.interval * m, step, m)
            for step in steps
            for m in range(self.num_microbatches)
        ]
        plan = [(step, m) for _, step, m in sorted(timed)]
        return _Rank(plan, {step: place for place, step in enumerate(plan)}, steps)

    def stage_of(self, step: int) -> int:
        return min(step, 2 * self.num_stages - 1 - step)

    def run(self) -> tuple[RankOrder, ...]:
        """Commit the choice that starts first, over all ranks, until nothing is left."""
        for rank in range(len(self.ranks)):
            self._renew(rank)
        while self.heap:
            start, _, rank, version, step = heappop(self.heap)
            if version != self.ranks[rank].version:
                continue
            if step is None:
                self._run_weight(rank, start)
            else:
                self._run_step(rank, start, step)
            self._renew(rank)
        assert all(len(rank.order) * 2 == len(rank.plan) * 3 for rank in self.ranks), (
            "the block outgrows its memory"
        )
        return tuple(tuple(rank.order) for rank in self.ranks)

    def _renew(self, rank: int) -> None:
        """Replace a rank's entry in the heap, after anything that it depends on has changed."""
        state = self.ranks[rank]
        state.version += 1
        choice = min(self._choices(state), default=None)
        if choice is not None:
            start, priority, step = choice
            heappush(self.heap, (start, priority, rank, state.version, step))

    def _choices(self, state: _Rank) -> Iterator[_Choice]:
        """Everything sensible that a rank may do next."""
        free = state.free_s
        if state.head == len(state.plan):
            if state.weights:
                yield free, _THEN_WEIGHT, None
            return
        head = state.plan[state.head]
        if head[0] < self.num_stages and state.live == self.max_live:
            if state.weights:
                yield free, _THEN_WEIGHT, None
            return
        head_start = max(self.arrival[head[0]][head[1]], free)
        if head_start < inf:
            yield head_start, _HEAD_FIRST, head
        if head_start > free:
            if self.reorder:
                yield from self._steps_ahead(state, head, head_start)
            if state.weights and free + self.costs.backward_weight_s[state.weights[0][0]] <= head_start:
                yield free, _THEN_WEIGHT, None

    def _steps_ahead(self, state: _Rank, head: _Step, head_start: float) -> Iterator[_Choice]:
        """Steps from later in the plan that end before the head can start, and that memory allows."""
        for step in state.steps:
            m = self.done[step]
            if m == self.num_microbatches or (step, m) == head:
                continue
            start = max(self.arrival[step][m], state.free_s)
            if start < inf and start + self.duration[step] <= head_start and self._fits(state, (step, m)):
                yield start, _THEN_FORWARD if step < self.num_stages else _THEN_BACKWARD, (step, m)

    def _fits(self, state: _Rank, step: _Step) -> bool:
        """Whether the plan from here on still fits into memory, W aside, if a step goes first."""
        place = state.position[step]
        if place - state.head > _WINDOW:
            return False
        if step[0] >= self.num_stages:
            return True
        if state.live == self.max_live:
            return False
        live = state.before_backward + 1
        for other, m in state.plan[state.head : max(place, state.reach)]:
            if m >= self.done[other] and (other, m) != step:
                live += 1 if other < self.num_stages else -1
                if live > self.max_live:
                    return False
        return True

    def _run_weight(self, rank: int, start: float) -> None:
        state = self.ranks[rank]
        stage, m = state.weights.popleft()
        state.order.append((stage, "W", m))
        state.free_s = start + self.costs.backward_weight_s[stage]
        state.live -= 1

    def _run_step(self, rank: int, start: float, step: _Step) -> None:
        state = self.ranks[rank]
        number, m = step
        stage = self.stage_of(number)
        end = state.free_s = start + self.duration[number]
        self.done[number] += 1
        state.reach = max(state.reach, state.position[step] + 1)
        while (
            state.head < len(state.plan) and state.plan[state.head][1] < self.done[state.plan[state.head][0]]
        ):
            state.head += 1
        if number < self.num_stages:
            state.order.append((stage, "F", m))
            state.live += 1
            state.before_backward += 1
        else:
            state.order.append((stage, "I", m))
            state.before_backward -= 1
            state.weights.append((stage, m))
        self._deliver(number + 1, m, end, rank)

    def _deliver(self, step: int, m: int, end: float, sender: int) -> None:
        """Tell the next step of the microbatch when its input is there."""
        if step == 2 * self.num_stages:
            return
        stages = sorted((self.stage_of(step - 1), self.stage_of(step)))
        transfer = 0.0 if stages[0] == stages[1] else self.costs.transfer_s[stages[0]]
        self.arrival[step][m] = end + transfer
        receiver = self.placement[self.stage_of(step)]
        if receiver != sender:
            self._renew(receiver)
