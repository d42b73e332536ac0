"""Masters propose every allowed assignment once, and say the truth about what is left."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import pytest

from octoplan_solvers.assignment_list import list_assignments
from octoplan_solvers.benders_master import CpSatMaster, ListMaster, Master, Proposal, choose_master
from octoplan_solvers.constraints import PlacementConstraints, StagesPerRank
from octoplan_solvers.placement_check import assignment_bound
from octoplan_solvers.problem import Assignment, PipelineProblem
from tests.solvers.placement.listing import every_assignment, name_swaps, obeys, renamed
from tests.solvers.placement.problems import make_problem

#: CP-SAT rounds coefficients down to whole units of time.
ROUNDING = 1e-6
RAMP = (0.2, 0.5, 0.3, 0.7, 0.4)
PLAIN = make_problem(RAMP, 2, max_stages=2, latency_s=0.05, overhead_s=0.01)
UNEVEN = make_problem(
    RAMP[:4], 2, max_stages=2, overhead_s=(0.01, 0.1), state=(3, 1, 1, 2), activation=0.5, limit=(5.6, 7.0)
)
ASKED = {
    "plain": PlacementConstraints(),
    "pin": PlacementConstraints(pins=((0, 1),)),
    "tied": PlacementConstraints(same_rank=((0, 3),)),
    "apart": PlacementConstraints(different_rank=((1, 2),)),
    "whole": PlacementConstraints(same_stage=((1, 3),)),
    "cut": PlacementConstraints(boundary_after=(1,)),
    "equal": PlacementConstraints(stages_per_rank=StagesPerRank(min=1, max=2, equal=True)),
    "two": PlacementConstraints(stages_per_rank=StagesPerRank(min=2)),
    "none": PlacementConstraints(same_stage=((1, 3),), boundary_after=(1,)),
}


def problems() -> list[object]:
    return [
        pytest.param(replace(problem, constraints=asked), id=f"{label}-{name}")
        for label, problem in (("plain", PLAIN), ("uneven", UNEVEN))
        for name, asked in ASKED.items()
    ]


def listing(problem: PipelineProblem) -> ListMaster:
    listed = list_assignments(problem)
    assert listed is not None
    return ListMaster(problem, listed)


def cp_sat(problem: PipelineProblem, hint: Assignment | None = None) -> CpSatMaster:
    return CpSatMaster(problem, 0, 1, hint, None)


def allowed(problem: PipelineProblem) -> list[Assignment]:
    return [
        assignment
        for assignment in every_assignment(problem)
        if obeys(problem.constraints, assignment, problem.num_ranks)
    ]


def proposals(master: Master, below_s: float = math.inf) -> list[Proposal]:
    """Ask until there is no more; the last one has no assignment."""
    asked = [master.propose(below_s, 60.0)]
    while asked[-1].assignment is not None:
        asked.append(master.propose(below_s, 60.0))
    return asked


def require_all(problem: PipelineProblem, master: Master) -> None:
    """Each class of names once; no bound is above that of anything that had not been proposed before."""
    names = name_swaps(problem, groups_of_equals=False)
    left = {assignment: assignment_bound(problem, assignment) for assignment in allowed(problem)}
    *proposed, last = proposals(master)
    for proposal in proposed:
        assert proposal.assignment in left
        assert proposal.bound_s <= min(left.values()) * (1 + ROUNDING)
        for name in names:
            left.pop(renamed(proposal.assignment, name), None)
    assert not left
    assert last == Proposal(None, math.inf)


@pytest.mark.parametrize("problem", problems())
def test_the_list_proposes_everything_by_bound(problem: PipelineProblem) -> None:
    require_all(problem, listing(problem))
    bounds = [proposal.bound_s for proposal in proposals(listing(problem))]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("problem", problems())
def test_cp_sat_proposes_everything(problem: PipelineProblem) -> None:
    require_all(problem, cp_sat(problem))


@pytest.mark.parametrize("make", [listing, cp_sat])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_what_lies_below_is_proposed_and_nothing_else(make: type[Master], share: float) -> None:
    bounds = sorted({round(assignment_bound(PLAIN, assignment), 9) for assignment in allowed(PLAIN)})
    below_s = bounds[int(share * len(bounds))] - 1e-4
    *proposed, last = proposals(make(PLAIN), below_s)  # type: ignore[call-arg]
    names = name_swaps(PLAIN, groups_of_equals=False)
    found = {renamed(p.assignment, name) for p in proposed if p.assignment is not None for name in names}
    assert found == {a for a in allowed(PLAIN) if assignment_bound(PLAIN, a) < below_s}
    assert last == Proposal(None, math.inf)


def test_a_hint_is_taken_for_the_first_proposal_only() -> None:
    hint = max(allowed(PLAIN), key=lambda assignment: assignment_bound(PLAIN, assignment))
    require_all(PLAIN, cp_sat(PLAIN, hint))


def test_no_time_proves_nothing() -> None:
    stop = threading.Event()
    stop.set()
    for master in (CpSatMaster(PLAIN, 0, 1, None, stop), cp_sat(PLAIN)):
        proposal = master.propose(math.inf, 0.0)
        assert proposal.bound_s <= min(assignment_bound(PLAIN, assignment) for assignment in allowed(PLAIN))


def test_short_lists_are_chosen() -> None:
    options = {"seed": 0, "num_workers": 1, "hint": None, "stop": None}
    large = make_problem((0.1,) * 40, 8, max_stages=4)
    assert isinstance(choose_master(PLAIN, **options), ListMaster)  # type: ignore[arg-type]
    assert isinstance(choose_master(large, **options), CpSatMaster)  # type: ignore[arg-type]
