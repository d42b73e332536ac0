"""`solve_pattern`: one repeating unit of an endless pipeline, solved exactly (modulo scheduling).

Every ``period``, a unit of u microbatches starts; op o of its j-th microbatch runs at ``offset[o, j]`` after that, in
unit n at ``offset[o, j] + n * period``. An order for any number of microbatches follows. The least period is found by
bisection (to 0.1%): if a period is possible so is a longer one, for a pause at one instant of the cycle delays what
starts after it, and breaks nothing. So a proof that a period is impossible is one for all shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from octoplan_solvers.ops import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, NUM_KINDS, IntArray
from octoplan_solvers.order import Order
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.model import Effort, configured
from octoplan_solvers.order_search.pattern_memory import add_pattern_memory
from octoplan_solvers.order_search.pattern_variables import PatternVariables, add_pattern_variables, edge_ends
from octoplan_solvers.staged import StagedProblem
from octoplan_solvers.stopping import is_stopped, stopped_by

#: Bisection stops when the least period is known to this share.
_PRECISION = 1e-3
#: Bisection ends after so many periods that could not be decided.
_MAX_UNDECIDED = 3


@dataclass(frozen=True)
class Pattern:
    """A repeating unit, in the units of `times`."""

    times: IntegerTimes
    period: int
    #: No pattern of as many microbatches has a shorter period (if it is proved; else what is).
    period_bound: int
    #: ``(S, K, u)`` start of F, I, W (or F, B) of every microbatch of the first unit.
    offset: IntArray

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one unit."""
        return int(self.offset.shape[2])

    @property
    def seconds_per_microbatch(self) -> float:
        """Period by microbatches."""
        return self.times.seconds(self.period) / self.num_microbatches


def solve_pattern(
    staged: StagedProblem,
    num_microbatches: int,
    effort: Effort,
    *,
    slowest_s: float | None = None,
) -> Pattern | None:
    """Find the shortest period, and for it the offsets with the shortest lives of microbatches.

    Parameters
    ----------
    num_microbatches:
        Of one unit; more of them may bring the period per microbatch down.
    effort:
        For each of the few models that are solved.
    slowest_s:
        Seconds per microbatch that a pattern must not exceed. By default a microbatch may be alone, all the way.

    Returns
    -------
    Pattern or None
        None if none was found.
    """
    alone_s = float(staged.duration_s.sum() + (staged.transfer_s + staged.latency_s).sum())
    longest_s = num_microbatches * (alone_s if slowest_s is None else slowest_s)
    times = IntegerTimes.of(staged, max(8 * num_microbatches * alone_s, 1e-300)).rounded_to_nearest(staged)
    longest = times.largest_below(longest_s) + 1
    search = _Periods(staged, times, num_microbatches, effort)
    best = search.shortest(least_period(staged, times, num_microbatches), longest)
    if best is None or is_stopped(effort.stop):
        return best
    offset, _ = search.offsets(best.period, stop_at_first=False)
    return replace(best, offset=best.offset if offset is None else offset)


class _Periods:
    """Bisection over the period."""

    def __init__(
        self, staged: StagedProblem, times: IntegerTimes, num_microbatches: int, effort: Effort
    ) -> None:
        self._staged = staged
        self._times = times
        self._num_microbatches = num_microbatches
        self._effort = effort

    def shortest(self, least: int, longest: int) -> Pattern | None:
        """Return the fastest pattern found in a range.

        The least period is tried first, as often it is possible. One that is not decided in time counts as too
        short, but not as proved so; after a few of these the search ends.
        """
        low, high, middle = least - 1, longest + 1, least
        impossible, undecided, best = low, 0, None
        while high - low > max(1, int(_PRECISION * high)) and middle < high and undecided < _MAX_UNDECIDED:
            if is_stopped(self._effort.stop):
                break
            offset, proved = self.offsets(middle, stop_at_first=True)
            if offset is not None:
                best, high = Pattern(self._times, middle, middle, offset), middle
            else:
                low = middle
                impossible = middle if proved else impossible
                undecided += not proved
            middle = (low + high) // 2
        return None if best is None else replace(best, period_bound=impossible + 1)

    def offsets(self, period: int, *, stop_at_first: bool) -> tuple[IntArray | None, bool]:
        """Return offsets for a period, or None, and then whether it is proved that there are none.

        The objective keeps lives short. It leads to solutions that fit into memory even where any would do.
        """
        model = cp_model.CpModel()
        duration = self._times.duration[:, _kinds(self._staged)]
        variables = add_pattern_variables(
            model, self._staged, self._times, duration, period, self._num_microbatches
        )
        _ranks_and_links_do_one_thing_at_a_time(model, variables)
        _data_and_order(model, variables)
        add_pattern_memory(model, variables)
        _minimise_lives(model, variables)
        solver = configured(self._effort)
        solver.parameters.stop_after_first_solution = stop_at_first
        solver.parameters.linearization_level = 2
        with stopped_by(solver, self._effort.stop):
            status = solver.solve(model)
        assert status != cp_model.MODEL_INVALID, model.validate()
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, status == cp_model.INFEASIBLE
        offset = np.zeros(
            (self._staged.num_stages, variables.num_kinds, self._num_microbatches), dtype=np.int64
        )
        for op, start in variables.start.items():
            offset[op] = solver.value(start)
        return offset, False


def least_period(staged: StagedProblem, times: IntegerTimes, num_microbatches: int) -> int:
    """Return the work of the busiest rank, or of the busiest link, in units: no period is shorter."""
    work = np.zeros(staged.num_ranks, dtype=np.int64)
    np.add.at(work, staged.stage_rank, times.duration[:, _kinds(staged)].sum(axis=1))
    busy = [int(times.transfer[staged.edge_pair == pair].sum()) for pair in range(len(staged.pairs))]
    return max(1, num_microbatches * max(int(work.max()), *busy, 0))


def least_seconds_per_microbatch(staged: StagedProblem) -> float:
    """Return the seconds of one microbatch on the busiest rank, or link: no steady state is faster."""
    work = np.zeros(staged.num_ranks)
    np.add.at(work, staged.stage_rank, staged.duration_s[:, _kinds(staged)].sum(axis=1))
    busy = [float(staged.transfer_s[staged.edge_pair == pair].sum()) for pair in range(len(staged.pairs))]
    return max(float(work.max()), *busy, 0.0)


def _kinds(staged: StagedProblem) -> list[int]:
    return [FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT] if staged.split_backward else [FORWARD, BACKWARD]


def _minimise_lives(model: cp_model.CpModel, variables: PatternVariables) -> None:
    last = variables.num_kinds - 1
    model.minimize(
        sum(
            variables.start[stage, last, j] - variables.start[stage, 0, j]
            for stage in range(variables.staged.num_stages)
            for j in range(variables.num_microbatches)
        )
    )


def _ranks_and_links_do_one_thing_at_a_time(model: cp_model.CpModel, variables: PatternVariables) -> None:
    """Modulo the period: each op, and each transfer, once where it is and once a period later."""
    staged, period = variables.staged, variables.period
    for rank in range(staged.num_ranks):
        intervals = []
        for op, phase in variables.phase.items():
            if staged.stage_rank[op[0]] == rank:
                length = int(variables.duration[op[0], op[1]])
                intervals += [
                    model.new_fixed_size_interval_var(phase + shift, length, "") for shift in (0, period)
                ]
        model.add_no_overlap(intervals)
    for pair in variables.queued:
        intervals = []
        for (edge, way, _), phase in variables.message_phase.items():
            if staged.edge_pair[edge, way] == pair:
                busy = int(variables.times.transfer[edge, way])
                intervals += [
                    model.new_fixed_size_interval_var(phase + shift, busy, "") for shift in (0, period)
                ]
        model.add_no_overlap(intervals)


def _data_and_order(model: cp_model.CpModel, variables: PatternVariables) -> None:
    staged, start = variables.staged, variables.start
    model.add(start[0, 0, 0] == 0)
    for (stage, kind, j), begin in start.items():
        length = int(variables.duration[stage, kind])
        # Microbatches in order, and the next unit's first one after this one's last.
        following = start.get((stage, kind, j + 1), start[stage, kind, 0] + variables.period)
        model.add(following >= begin + length)
        if kind > 0:
            model.add(begin >= variables.end(stage, kind - 1, j))
    for edge in range(len(staged.edge_source)):
        for way in range(2):
            sender, receiver = edge_ends(staged, edge, way)
            for j in range(variables.num_microbatches):
                departure = variables.departure(edge, way, j)
                model.add(departure >= variables.end(sender, way, j))
                model.add(start[receiver, way, j] >= departure + variables.delay(edge, way))


def unroll(staged: StagedProblem, pattern: Pattern) -> Order:
    """Return the order in which the pattern runs all microbatches of the problem."""
    number = np.arange(staged.num_microbatches)
    unit, within = np.divmod(number, pattern.num_microbatches)
    start = pattern.offset[:, :, within] + unit * pattern.period
    stage, kind, microbatch = (axis.ravel() for axis in np.indices(start.shape))
    rank = staged.stage_rank[stage]
    sequence = np.lexsort((kind, start.ravel(), rank))
    kinds = np.array(_kinds(staged))[kind]
    codes = (stage * staged.num_microbatches + microbatch) * NUM_KINDS + kinds
    begin = np.searchsorted(rank[sequence], np.arange(staged.num_ranks + 1))
    return Order(codes[sequence].astype(np.int64), begin.astype(np.int64), staged.num_microbatches)
