"""`check_plan` against literal execution: it finds something exactly when a plan does not run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octoplan_schemas import InputError, Plan, check_plan, parse_word, require_valid, stage_edges
from tests.schemas.brute_checks import is_first_in_first_out, runs, word_graph
from tests.schemas.documents import EXAMPLE_PLAN, replaced
from tests.schemas.random_plans import (
    MUTATIONS,
    Pipeline,
    Programs,
    plan_of,
    random_pipeline,
    random_programs,
)

seeds = st.integers(0, 2**32)
PERMUTATIONS = [
    mutate for mutate in MUTATIONS if mutate.__name__ not in ("drop", "double", "move_to_another_rank")
]


def random_case(seed: int) -> tuple[random.Random, Pipeline, Programs]:
    source = random.Random(seed)
    pipeline = random_pipeline(source)
    return source, pipeline, random_programs(pipeline, source)


def rules(pipeline: Pipeline, programs: Programs) -> set[str]:
    return {finding.rule for finding in check_plan(plan_of(pipeline, programs), pipeline.skips)}


def test_example_of_the_contract_passes() -> None:
    assert check_plan(Plan.from_document(EXAMPLE_PLAN)) == []
    require_valid(Plan.from_document(EXAMPLE_PLAN))


@settings(deadline=None, max_examples=200)
@given(seeds)
def test_valid_plans_have_no_finding(seed: int) -> None:
    _, pipeline, programs = random_case(seed)
    assert runs(pipeline, programs)
    plan = plan_of(pipeline, programs)
    assert check_plan(plan, pipeline.skips) == []
    assert check_plan(plan) == []  # the words tell the skip edges


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@settings(deadline=None, max_examples=120)
@given(seed=seeds)
def test_a_finding_exactly_when_the_programs_do_not_run(
    mutate: Callable[[Programs, random.Random], None], seed: int
) -> None:
    source, pipeline, programs = random_case(seed)
    for _ in range(source.randint(1, 2)):
        mutate(programs, source)
    assert bool(rules(pipeline, programs)) == (not runs(pipeline, programs))


@pytest.mark.parametrize("mutate", PERMUTATIONS, ids=lambda mutate: mutate.__name__)
@settings(deadline=None, max_examples=80)
@given(seed=seeds)
def test_reordered_programs_against_the_full_graph(
    mutate: Callable[[Programs, random.Random], None], seed: int
) -> None:
    """The total order of each program adds nothing to the contract's two orders, and networkx agrees."""
    source, pipeline, programs = random_case(seed)
    mutate(programs, source)
    total = word_graph(pipeline, programs, is_total_order=True)
    is_sound = nx.is_directed_acyclic_graph(total) and is_first_in_first_out(pipeline, programs)
    found = rules(pipeline, programs)
    assert bool(found) == (not is_sound)
    assert runs(pipeline, programs) == is_sound
    if "deadlock" in found:
        assert not nx.is_directed_acyclic_graph(word_graph(pipeline, programs, is_total_order=False))


def test_mutations_reach_every_rule_and_valid_plans_too() -> None:
    """The random tests above would be hollow if they met only one outcome."""
    seen: set[str] = set()
    for seed in range(400):
        source, pipeline, programs = random_case(seed)
        source.choice(MUTATIONS)(programs, source)
        seen |= rules(pipeline, programs) or {"valid"}
    assert seen == {"structure", "complete", "order", "fifo", "deadlock", "valid"}


@settings(deadline=None, max_examples=100)
@given(seeds)
def test_printed_cycle_is_a_cycle(seed: int) -> None:
    _, pipeline, programs = random_case(seed)
    for words in programs:
        words.sort(key=lambda word: "RECV" not in word)
    findings = check_plan(plan_of(pipeline, programs), pipeline.skips)
    if not findings or findings[0].rule != "deadlock":
        return
    graph = word_graph(pipeline, programs, is_total_order=False)
    cycle = findings[0].message.removeprefix("these wait for each other: ").split(" -> ")
    assert cycle[0] == cycle[-1]
    assert len(set(cycle)) == len(cycle) - 1
    nodes = [message_node(word) for word in cycle]
    for one, other in itertools.pairwise(nodes):
        assert graph.has_edge(one, other)


def message_node(word: str) -> str:
    parsed = parse_word(word)
    return word if parsed.is_compute else f"{parsed.stage}>{parsed.other_stage}:{parsed.microbatch}"


def example_with(path: tuple[Any, ...], value: Any) -> Plan:
    return Plan.from_document(replaced(EXAMPLE_PLAN, path, value))


@pytest.mark.parametrize(
    ("path", "value", "rule", "words"),
    [
        (("programs", 0), ["0F0", "0SEND_F0", "0RECV_B0"], "complete", "0 has no backward"),
        (("programs", 0), ["0F0", "0SEND_F0", "0B0"], "complete", "0RECV_B0 is missing"),
        (("programs", 0, 1), "0SEND_F0@1", None, ""),
        (("programs", 0, 1), "0F0", "complete", "programs.0.1: 0F0 occurs twice"),
        (("programs", 1, 4), "1B0", "complete", "1B0 and 1I0"),
        (("programs", 1), ["1RECV_F0", "1F0", "1I0", "1SEND_B0"], "complete", "has 1I0; it needs"),
        (("programs", 0, 0), "zero", "structure", "programs.0.0: 'zero' is not an op word"),
        (("programs", 0, 0), "0F1", "structure", "0F1 names a stage or microbatch that is not there"),
        (("programs", 0, 0), "2F0", "structure", "2F0 names a stage or microbatch that is not there"),
        (("programs", 0, 0), "1F0", "structure", "1F0 belongs to stage 1, which is on rank 1"),
        (("programs", 0, 1), "0SEND_F0@7", "structure", "0SEND_F0@7 names a stage"),
        (("programs", 0, 1), "0SEND_B0", "complete", "0SEND_B0 has no edge between two ranks"),
        (("programs", 0), ["0SEND_F0", "0F0", "0RECV_B0", "0B0"], "order", "0SEND_F0 must come after 0F0"),
        (("programs", 0), ["0F0", "0SEND_F0", "0B0", "0RECV_B0"], "order", "0B0 must come after 0RECV_B0"),
        (("programs", 0), ["0RECV_B0", "0F0", "0SEND_F0", "0B0"], "deadlock", "wait for each other"),
        (("programs",), [EXAMPLE_PLAN["programs"][0]], "structure", "stages.1.rank: 1 has no program"),
        (("programs",), [*EXAMPLE_PLAN["programs"], []], "structure", "rank 2 holds no stage"),
        (("stages", 1, "id"), 2, "structure", "stages.1.id: 2 must be 1"),
        (("stages", 1, "layers"), [2, 3], "structure", "must start at layer 1"),
        (("stages", 1, "layers"), [1, 1], "structure", "end after it"),
        (("stages", 1, "rank"), 0, "structure", "rank 1 holds no stage"),
    ],
)
def test_findings_name_the_place(path: tuple[Any, ...], value: Any, rule: str | None, words: str) -> None:
    findings = check_plan(example_with(path, value))
    if rule is None:
        assert findings == []
        return
    assert {finding.rule for finding in findings} == {rule}
    assert any(words in str(finding) for finding in findings), [str(finding) for finding in findings]
    assert all("\n" not in str(finding) for finding in findings)


def test_swapped_receives_of_a_pair_are_named() -> None:
    pipeline = Pipeline((0, 1), (), 2, frozenset())
    programs = [
        ["0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"],
        ["1RECV_F1", "1RECV_F0", "1F0", "1B0", "1SEND_B0", "1F1", "1B1", "1SEND_B1"],
    ]
    (finding,) = check_plan(plan_of(pipeline, programs))
    assert finding.rule == "fifo"
    assert "sent as 0SEND_F0 (programs.0.1) but received as 1RECV_F1 (programs.1.0)" in str(finding)


def test_a_skip_that_the_model_does_not_have_is_found() -> None:
    pipeline = Pipeline((0, 1, 2), ((0, 2),), 1, frozenset())
    programs = random_programs(pipeline, random.Random(0))
    plan = plan_of(pipeline, programs)
    assert check_plan(plan, [(0, 2)]) == check_plan(plan) == []
    assert {finding.rule for finding in check_plan(plan, [])} == {"complete"}
    without = plan_of(pipeline, random_programs(replace(pipeline, skips=()), random.Random(0)))
    assert check_plan(without) == []
    assert any("0SEND_F0@2 is missing" in str(finding) for finding in check_plan(without, [(0, 2)]))


def test_order_through_a_local_skip_is_checked() -> None:
    pipeline = Pipeline((0, 1, 0), ((0, 2),), 1, frozenset())
    programs = [
        ["0F0", "0SEND_F0", "2RECV_F0", "2F0", "2B0", "2SEND_B0", "0RECV_B0", "0B0"],
        ["1RECV_F0", "1F0", "1SEND_F0", "1RECV_B0", "1B0", "1SEND_B0"],
    ]
    assert check_plan(plan_of(pipeline, programs), pipeline.skips) == []


def test_require_valid_raises_the_first_finding_with_its_source() -> None:
    with pytest.raises(InputError, match=r"^plan\.json: complete: programs\.0\.1: 0F0 occurs twice"):
        require_valid(example_with(("programs", 0, 1), "0F0"), source="plan.json")


def test_findings_are_limited_and_a_mistyped_count_ends_at_once() -> None:
    findings = check_plan(example_with(("job", "microbatches"), 10**12))
    assert len(findings) == 20
    assert all(finding.rule == "complete" for finding in findings)


def test_many_ops_are_checked() -> None:
    num_microbatches = 1_700
    rank_of = (0, 1, 2, 3)
    split = frozenset((stage, m) for stage in range(4) for m in range(num_microbatches))
    pipeline = Pipeline(rank_of, (), num_microbatches, split)
    programs = random_programs(pipeline, random.Random(1))
    assert sum("_" not in word for words in programs for word in words) == 20_400
    assert check_plan(plan_of(pipeline, programs)) == []
    programs[2].reverse()
    assert check_plan(plan_of(pipeline, programs))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    skips=st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), max_size=6),
)
def test_stage_edges(sizes: list[int], skips: list[tuple[int, int]]) -> None:
    bounds, first = [], 0
    for size in sizes:
        bounds.append((first, first + size))
        first += size
    inside = [(a % first, b % first) for a, b in skips]
    forward = [(min(pair), max(pair)) for pair in inside if pair[0] != pair[1]]
    edges = stage_edges(bounds, forward)
    assert edges == sorted(set(edges))
    for one in range(len(bounds)):
        for other in range(one, len(bounds)):
            crosses = any(a in range(*bounds[one]) and b in range(*bounds[other]) for a, b in forward)
            assert ((one, other) in edges) == (other == one + 1 or (crosses and other != one))
