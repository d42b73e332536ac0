"""Variables of the pattern model: start of every op of one unit, as a whole number of periods and a phase."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from octoplan_solvers.ops import IntArray
from octoplan_solvers.order_search.integer_times import IntegerTimes
from octoplan_solvers.order_search.variables import queued_pairs
from octoplan_solvers.staged import StagedProblem

#: Stage, class (0: F, 1: I or B, 2: W) and microbatch within the unit.
PatternOp = tuple[int, int, int]


@dataclass(frozen=True)
class PatternVariables:
    """Times are counted from the start of the first stage's first F."""

    staged: StagedProblem
    times: IntegerTimes
    #: ``(S, K)`` by class.
    duration: IntArray
    period: int
    num_microbatches: int
    #: No op starts later than so many periods.
    num_periods: int
    start: dict[PatternOp, cp_model.IntVar]
    #: ``start`` modulo the period.
    phase: dict[PatternOp, cp_model.IntVar]
    #: Directed rank pairs on which messages may have to queue, and start and phase of their messages.
    queued: set[int]
    message_start: dict[PatternOp, cp_model.IntVar]
    message_phase: dict[PatternOp, cp_model.IntVar]

    @property
    def num_kinds(self) -> int:
        """3 if backwards are split, else 2."""
        return int(self.duration.shape[1])

    def end(self, stage: int, kind: int, microbatch: int) -> cp_model.LinearExprT:
        """End of an op."""
        return self.start[stage, kind, microbatch] + int(self.duration[stage, kind])

    def departure(self, edge: int, way: int, microbatch: int) -> cp_model.LinearExprT:
        """Start of a message."""
        if (edge, way, microbatch) in self.message_start:
            return self.message_start[edge, way, microbatch]
        return self.end(edge_ends(self.staged, edge, way)[0], way, microbatch)

    def delay(self, edge: int, way: int) -> int:
        """Units from the start of a message to its arrival."""
        if not self.staged.edge_crosses[edge]:
            return 0
        return int(self.times.transfer[edge, way] + self.times.latency[edge, way])

    def split(
        self, model: cp_model.CpModel, amount: cp_model.LinearExprT
    ) -> tuple[cp_model.IntVar, cp_model.IntVar]:
        """Return quotient and remainder of an amount of time by the period."""
        quotient = model.new_int_var(0, self.num_periods + 1, "")
        remainder = model.new_int_var(0, self.period - 1, "")
        model.add(amount == quotient * self.period + remainder)
        return quotient, remainder


def edge_ends(staged: StagedProblem, edge: int, way: int) -> tuple[int, int]:
    """Return the stages that send and receive, forwards (0) or backwards (1)."""
    ends = int(staged.edge_source[edge]), int(staged.edge_destination[edge])
    return ends if way == 0 else ends[::-1]


def add_pattern_variables(
    model: cp_model.CpModel,
    staged: StagedProblem,
    times: IntegerTimes,
    duration: IntArray,
    period: int,
    num_microbatches: int,
) -> PatternVariables:
    """Create the variables."""
    delays = int((times.transfer + times.latency)[staged.edge_crosses].sum())
    chain = num_microbatches * int(duration.sum()) + delays
    num_periods = 2 + 2 * chain // period
    queued = queued_pairs(staged)
    ops = [
        (stage, kind, j)
        for stage in range(staged.num_stages)
        for kind in range(duration.shape[1])
        for j in range(num_microbatches)
    ]
    messages = [
        (edge, way, j)
        for edge in range(len(staged.edge_source))
        for way in range(2)
        for j in range(num_microbatches)
        if staged.edge_pair[edge, way] in queued
    ]
    limit = period * (num_periods + 1) - 1
    variables = PatternVariables(
        staged=staged,
        times=times,
        duration=duration,
        period=period,
        num_microbatches=num_microbatches,
        num_periods=num_periods,
        start={op: model.new_int_var(0, limit, f"start{op}") for op in ops},
        phase={},
        queued=queued,
        message_start={message: model.new_int_var(0, limit, f"message{message}") for message in messages},
        message_phase={},
    )
    for starts, phases in (
        (variables.start, variables.phase),
        (variables.message_start, variables.message_phase),
    ):
        for name, start in starts.items():
            phases[name] = variables.split(model, start)[1]
    return variables
