"""No bound above the optimum, and no plan below it: the safety net under every lower bound.

The optimum comes from `tests.exhaustive`, which shares no code with the solvers. A failure names the seed: build the
problem with `tests.tiny_problems.random_tiny_problem(seed)`. The 500-problem version, with the gap of each bound, is
`python -m benchmarks.bounds_against_exhaustive`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import pytest

from octoplan import CompileOptions, InfeasibleError, compile_plan
from octoplan.proof import prove
from octoplan_schemas import Plan
from octoplan_solvers.bounds import activation_residence, lower_bounds
from octoplan_solvers.cp_sat import solve_placement
from tests.builders import make_cluster, make_layer, make_model, uniform_model
from tests.exhaustive import Optimum, find_optimum
from tests.tiny_problems import TinyProblem, random_tiny_problem

TOLERANCE = 1e-9
SEEDS = range(40)
#: Proofs take longest of all here, where they do not succeed.
PROVED_SEEDS = range(24)


@cache
def _solved(seed: int) -> tuple[TinyProblem, Optimum | None]:
    problem = random_tiny_problem(seed)
    return problem, problem.optimum()


def _require_below(name: str, bound_s: float, problem: TinyProblem, optimum: Optimum | None) -> None:
    """Fail if a bound lies above the optimum; where no plan fits, a bound may be anything."""
    if optimum is not None and optimum.makespan_s is not None:
        assert bound_s <= optimum.makespan_s * (1 + TOLERANCE), f"{name} is no bound, {problem}"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_formula_is_above_the_optimum(seed: int) -> None:
    problem, optimum = _solved(seed)
    for limits in (problem.limits, [np.inf] * problem.cluster.num_ranks):
        for bound in lower_bounds(problem.problem(np.array(limits))):
            _require_below(bound.name, bound.seconds, problem, optimum)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_master_problem_is_never_above_the_optimum(seed: int) -> None:
    problem, optimum = _solved(seed)
    result = solve_placement(problem.problem(np.array(problem.limits)), time_limit_s=1.0, num_workers=1)
    if result.status == "infeasible":
        assert optimum is None or optimum.makespan_s is None, f"not infeasible, {problem}"
        return
    if result.bound_s is not None:
        _require_below("cp-sat-placement", result.bound_s, problem, optimum)


def _compile(problem: TinyProblem) -> Plan | None:
    options = CompileOptions(
        microbatches=problem.num_microbatches,
        backward=problem.backward,
        max_stages_per_device=problem.max_stages_per_device,
        memory_limit="100%",
        max_evaluations=50,
    )
    try:
        return compile_plan(problem.model, problem.cluster, options)
    except InfeasibleError:
        return None


@pytest.mark.parametrize("seed", PROVED_SEEDS)
def test_benders_decomposition_is_never_above_the_optimum(seed: int) -> None:
    problem, optimum = _solved(seed)
    best, bound = prove(problem.problem(np.array(problem.limits)), None, time_limit_s=1.0, seed=0)
    _require_below(bound.name, bound.seconds, problem, optimum)
    if best is not None:
        assert optimum is not None, f"a plan was found where none fits, {problem}"
        assert best.makespan_s >= optimum.lower_s * (1 - TOLERANCE), f"too short, {problem}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compiled_plan_lies_between_its_bound_and_the_optimum(seed: int) -> None:
    problem, optimum = _solved(seed)
    plan = _compile(problem)
    if plan is None:
        assert any(np.isfinite(problem.limits)), "only a memory limit makes a job infeasible"
        return
    assert optimum is not None, f"a plan was found where none fits, {problem}"
    assert plan.predicted.makespan_s >= optimum.lower_s * (1 - TOLERANCE), f"the search is wrong, {problem}"
    assert plan.predicted.lower_bound_s is not None
    _require_below(plan.predicted.binding_bound or "", plan.predicted.lower_bound_s, problem, optimum)


def test_the_seeds_cover_the_features() -> None:
    """Both backwards, device types, overheads, skips, several stages per rank, limits that bind and that forbid."""
    problems, optima = zip(*(_solved(seed) for seed in SEEDS), strict=True)
    assert {problem.backward for problem in problems} == {"split", "fused"}
    assert {problem.num_microbatches for problem in problems} == {1, 2, 3}
    assert {problem.cluster.num_ranks for problem in problems} == {1, 2, 3}
    assert any(len({device.type for device in problem.cluster.devices}) > 1 for problem in problems)
    assert any(problem.model.skips for problem in problems)
    types = [kind for problem in problems for kind in problem.cluster.device_types.values()]
    assert any(kind.op_overhead_s > 0 for kind in types)
    assert None in optima
    free = [
        find_optimum(
            problem.model,
            problem.cluster,
            num_microbatches=problem.num_microbatches,
            backward=problem.backward,
            max_stages_per_device=problem.max_stages_per_device,
        )
        for problem in problems
    ]
    pairs = [(own, other) for own, other in zip(optima, free, strict=True) if own and other]
    assert any(own.makespan_s and own.makespan_s > other.lower_s * (1 + TOLERANCE) for own, other in pairs)
    plans = [own.plan for own, _ in pairs if own.plan]
    assert any(len(plan.stages) > plan.num_ranks for plan in plans)
    assert any(
        "I" in word and "SEND" not in word for plan in plans for words in plan.programs for word in words
    )


def test_a_wrong_bound_is_noticed() -> None:
    """Equal stages: 9 s of work on each of 2 ranks, and 1 s of filling; 12 s if fused."""
    model, cluster = uniform_model(2), make_cluster(2)
    problem = TinyProblem(0, model, cluster, 3, "split", 1)
    optimum = problem.optimum()
    assert optimum is not None
    assert optimum.makespan_s == 10.0
    with pytest.raises(AssertionError, match="no bound"):
        _require_below("one", 10.0001, problem, optimum)
    _require_below("one", 10.0, problem, optimum)
    fused = replace(problem, backward="fused").optimum()
    assert fused is not None
    assert fused.makespan_s == 12.0


@pytest.mark.parametrize(("backward", "expected"), [("fused", 4.5), ("split", 3.75)])
def test_activations_need_room_for_as_long_as_they_stay(
    backward: Literal["fused", "split"], expected: float
) -> None:
    """Two layers of 1 s per op and 1 byte, 1 byte of room per rank: 6 + 3 byte-seconds, or 5 + 3 - 0.5 if split.

    Split, the first layer's activation stays for 2 F, 2 I and its W, the second one's for F, I and W; half of the
    second one's is freed at I.
    """
    layers = [make_layer(f"l{index}", activation_bytes=1) for index in range(2)]
    layers[1] = layers[1].model_copy(update={"retained_bytes": 0.5})
    cluster = make_cluster(2, memory_bytes=1)
    problem = TinyProblem(0, make_model(layers), cluster, 4, backward, 1)
    arrays = problem.problem(np.array(problem.limits))
    assert activation_residence(arrays) == pytest.approx(4 * expected, rel=1e-8)
    optimum = problem.optimum()
    assert optimum is not None
    assert optimum.makespan_s is not None
    assert activation_residence(arrays) <= optimum.makespan_s
    assert lower_bounds(arrays)[0].name == "activation-residence"
    assert activation_residence(problem.problem(np.array([np.inf, np.inf]))) == 0.0


def test_a_limit_without_states_counts_like_one_with_them() -> None:
    layers = [make_layer(f"l{index}", activation_bytes=1, state_bytes=7) for index in range(2)]
    problem = TinyProblem(0, make_model(layers), make_cluster(2), 3, "fused", 1)
    whole = problem.problem(np.array([8.0, 8.0]))
    dynamic = replace(problem.problem(np.array([np.inf, np.inf])), dynamic_limit_bytes=1.0)
    assert activation_residence(whole) == pytest.approx(activation_residence(dynamic), rel=1e-7)
    assert activation_residence(whole) > 0
