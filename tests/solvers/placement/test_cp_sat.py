"""What CP-SAT alone can do: hints, exclusion, explanation, interruption, reproducible runs, export."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model

from octoplan.importers import import_model
from octoplan.problem_builder import build_problem
from octoplan_schemas import Cluster, load
from octoplan_solvers.brute_force import all_assignments
from octoplan_solvers.constraints import PlacementConstraints, StagesPerRank
from octoplan_solvers.cp_sat import emit_model, explain_infeasible, find_conflict, solve_placement
from octoplan_solvers.cp_sat.explain import least_memory_factor
from octoplan_solvers.placement_check import assignment_bound, check_assignment
from octoplan_solvers.problem import Assignment, PipelineProblem
from octoplan_solvers.result import SolverResult
from octoplan_solvers.symmetry import canonical
from tests.solvers.placement.problems import make_problem

EXAMPLES = Path(__file__).parents[3] / "examples"
PROFILES, CLUSTERS = EXAMPLES / "profiles", EXAMPLES / "clusters"
RANDOM = np.random.default_rng(5)
#: Large enough that its optimum is not proved at once.
LARGE = make_problem(
    RANDOM.uniform(0.5, 1.5, 60), 8, max_stages=4, microbatches=24, latency_s=0.01, state=1.0, limit=9.0
)
SMALL = make_problem((0.2, 0.5, 0.3, 0.7), 2, max_stages=2, overhead_s=0.02, latency_s=0.05)


def test_a_hint_is_the_first_solution() -> None:
    hint = Assignment.from_sizes([6, 9, 7, 8, 8, 7, 8, 7], [3, 1, 0, 2, 7, 6, 5, 4])
    result = solve_placement(LARGE, time_limit_s=1, hint=hint, num_workers=1, deterministic=True)
    assert result.solutions[0] == canonical(LARGE, hint)
    assert result.objective_s is not None
    assert result.objective_s < assignment_bound(LARGE, hint)


def test_stopped_before_anything_the_best_regular_start_is_the_answer() -> None:
    stop = threading.Event()
    stop.set()
    result = solve_placement(LARGE, time_limit_s=0.0, stop=stop)
    assert result.status == "feasible"
    assert result.assignment is not None
    assert check_assignment(LARGE, result.assignment) == []
    assert result.objective_s is not None
    assert result.bound_s is not None
    assert result.bound_s <= result.objective_s


def test_deterministic_runs_are_equal() -> None:
    def run() -> SolverResult:
        return solve_placement(LARGE, time_limit_s=0.5, num_workers=1, seed=3, deterministic=True)

    first, second = run(), run()
    assert first.solutions == second.solutions
    assert first.bound_s == second.bound_s


def test_objective_and_bound_meet_the_independent_evaluation_on_large_problems() -> None:
    result = solve_placement(LARGE, time_limit_s=4)
    assert result.assignment is not None
    assert check_assignment(LARGE, result.assignment) == []
    own = assignment_bound(LARGE, result.assignment)
    assert result.objective_s == pytest.approx(own, rel=1e-4)
    assert result.bound_s is not None
    assert result.bound_s <= own
    assert [bound for _, _, bound in result.trace] == sorted(bound for _, _, bound in result.trace)


@pytest.mark.parametrize(
    "problem",
    [SMALL, replace(SMALL, constraints=PlacementConstraints(pins=((2, 1),), boundary_after=(1,)))],
    ids=["free", "constrained"],
)
def test_excluding_every_answer_enumerates_all_assignments(problem: PipelineProblem) -> None:
    allowed = [one for one in all_assignments(problem) if not check_assignment(problem, one)]
    expected = {canonical(problem, one) for one in allowed}
    found: list[Assignment] = []
    bounds: list[float] = []
    while True:
        result = solve_placement(problem, time_limit_s=30, num_workers=1, excluded=found)
        if result.status == "infeasible":
            break
        assert result.status == "optimal"
        assert result.assignment is not None
        assert result.bound_s is not None
        found.append(result.assignment)
        bounds.append(result.bound_s)
    assert set(found) == expected
    assert len(found) == len(expected)
    assert bounds == sorted(bounds)


def test_exclusion_holds_under_any_naming_of_equal_ranks() -> None:
    problem = make_problem((1.0, 1.0), 2)
    result = solve_placement(problem, time_limit_s=30, excluded=[Assignment.from_sizes([1, 1], [1, 0])])
    assert result.status == "infeasible"


def test_nothing_below_the_optimum() -> None:
    best = solve_placement(SMALL, time_limit_s=30)
    assert best.objective_s is not None
    assert solve_placement(SMALL, time_limit_s=30, below_s=best.objective_s * 1.01).status == "optimal"
    assert solve_placement(SMALL, time_limit_s=30, below_s=best.objective_s * 0.99).status == "infeasible"


def test_every_name_in_a_conflict_is_needed() -> None:
    constraints = PlacementConstraints(
        pins=((0, 0), (3, 1)), same_rank=((0, 1), (1, 2), (2, 3)), boundary_after=(2,)
    )
    problem = replace(make_problem((1.0,) * 5, 2, max_stages=2), constraints=constraints)
    assert set(find_conflict(problem)) == {
        "pin of layer 'layer0' to rank 0",
        "pin of layer 'layer3' to rank 1",
        "same rank for layer 'layer0' and layer 'layer1'",
        "same rank for layer 'layer1' and layer 'layer2'",
        "same rank for layer 'layer2' and layer 'layer3'",
    }


def test_the_remedy_for_memory_is_the_least_factor() -> None:
    # Three ranks and four layers of 3 bytes: some rank must hold two.
    problem = make_problem((1.0,) * 4, 3, state=2.0, activation=1.0, limit=4.0)
    result = solve_placement(problem, time_limit_s=30)
    assert result.status == "infeasible"
    assert result.remedy == "memory limits at least 1.5 times as large"
    assert {name for name in result.conflict if "memory limit" in name} == {
        f"memory limit of rank {rank} (4 bytes)" for rank in range(3)
    }
    roomy = replace(problem, memory_limit_bytes=problem.memory_limit_bytes * 1.5)
    assert solve_placement(roomy, time_limit_s=30).status == "optimal"


def test_memory_is_no_remedy_where_constraints_clash() -> None:
    constraints = PlacementConstraints(pins=((0, 0), (0, 1)))
    problem = replace(make_problem((1.0,) * 4, 2, state=1.0, limit=3.0), constraints=constraints)
    assert least_memory_factor(problem) is None


def test_a_count_that_does_not_go_into_the_layers_is_explained() -> None:
    constraints = PlacementConstraints(stages_per_rank=StagesPerRank(min=2, equal=True))
    problem = replace(make_problem((1.0,) * 3, 2, max_stages=2), constraints=constraints)
    result = explain_infeasible(problem, SolverResult("infeasible", "cp-sat", 0, 0.0))
    assert set(result.conflict) == {"at least 2 stages on rank 0", "at least 2 stages on rank 1"}
    assert result.remedy.startswith("drop or relax one of")


def test_an_emitted_model_has_the_same_optimum_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "model.pb.txt"
    emit_model(SMALL, path)
    proto = text_format.Parse(path.read_text(), cp_model_pb2.CpModelProto())
    model = cp_model.CpModel()
    model.proto.parse_text_format(path.read_text())
    solver = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL
    expected = solve_placement(SMALL, time_limit_s=30).objective_s
    assert solver.objective_value == pytest.approx(expected)
    assert {variable.name for variable in proto.variables} >= {"on[0,0]", "makespan"}


def test_the_optimum_of_a_measured_model() -> None:
    graph = import_model(PROFILES / "llama3-8B.json")
    cluster = load(CLUSTERS / "h800x4.json", Cluster)
    problem = build_problem(graph, cluster, num_microbatches=16, max_stages_per_rank=4)
    unhindered = replace(
        problem, latency_s=np.zeros_like(problem.latency_s), bandwidth=np.full_like(problem.bandwidth, np.inf)
    )
    result = solve_placement(unhindered, time_limit_s=60)
    assert result.status == "optimal"
    # Found by another formulation, and by a plan of this length.
    assert result.objective_s == pytest.approx(0.74934461, rel=1e-6)
