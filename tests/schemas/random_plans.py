"""Random valid plans, and ways to break their programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from octoplan_schemas import Plan, parse_word, transfer_words
from tests.schemas.documents import EXAMPLE_PLAN

Programs = list[list[str]]


@dataclass(frozen=True)
class Pipeline:
    """What a random plan is about: ranks of stages, skip edges, and which backwards are split."""

    rank_of: tuple[int, ...]
    skips: tuple[tuple[int, int], ...]
    num_microbatches: int
    split: frozenset[tuple[int, int]]

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs of stages that exchange tensors, earlier first."""
        return sorted({(stage, stage + 1) for stage in range(len(self.rank_of) - 1)} | set(self.skips))


def random_pipeline(random: random.Random, *, max_ranks: int = 4, max_microbatches: int = 3) -> Pipeline:
    num_ranks = random.randint(1, max_ranks)
    num_stages = num_ranks + random.randint(0, 3)
    rank_of = [*range(num_ranks), *(random.randrange(num_ranks) for _ in range(num_stages - num_ranks))]
    random.shuffle(rank_of)
    far = [(a, b) for a in range(num_stages) for b in range(a + 2, num_stages)]
    skips = tuple(random.sample(far, random.randint(0, min(2, len(far)))))
    num_microbatches = random.randint(1, max_microbatches)
    pairs = [(stage, m) for stage in range(num_stages) for m in range(num_microbatches)]
    share = random.choice([0.0, 0.5, 1.0])
    return Pipeline(
        tuple(rank_of), skips, num_microbatches, frozenset(p for p in pairs if random.random() < share)
    )


def random_programs(pipeline: Pipeline, random: random.Random) -> Programs:
    """Run the ops in a random order that dependencies allow; write SEND and RECV when the producer runs."""
    waiting: dict[tuple[int, str, int], int] = {}
    successors: dict[tuple[int, str, int], list[tuple[int, str, int]]] = {}

    def back(stage: int, m: int) -> tuple[int, str, int]:
        return stage, "I" if (stage, m) in pipeline.split else "B", m

    def depends(op: tuple[int, str, int], on: tuple[int, str, int]) -> None:
        waiting[op] += 1
        successors[on].append(op)

    stages, microbatches = range(len(pipeline.rank_of)), range(pipeline.num_microbatches)
    for stage in stages:
        for m in microbatches:
            for op in ((stage, "F", m), back(stage, m), (stage, "W", m)):
                waiting[op], successors[op] = 0, []
            depends(back(stage, m), (stage, "F", m))
            if (stage, m) in pipeline.split:
                depends((stage, "W", m), back(stage, m))
            else:
                del waiting[stage, "W", m]
    for early, late in pipeline.edges:
        for m in microbatches:
            depends((late, "F", m), (early, "F", m))
            depends(back(early, m), back(late, m))

    neighbours: dict[tuple[int, str], list[int]] = {}
    for early, late in pipeline.edges:
        neighbours.setdefault((early, "F"), []).append(late)
        neighbours.setdefault((late, "B"), []).append(early)
    programs: Programs = [[] for _ in range(max(pipeline.rank_of) + 1)]
    ready = [op for op, count in waiting.items() if count == 0]
    while ready:
        chosen = random.randrange(len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        op = stage, kind, m = ready.pop()
        rank = pipeline.rank_of[stage]
        programs[rank].append(f"{stage}{kind}{m}")
        direction = {"F": "F", "I": "B", "B": "B"}.get(kind, "")
        others = neighbours.get((stage, direction), [])
        for other in random.sample(others, len(others)):
            other_rank = pipeline.rank_of[other]
            if other_rank != rank:
                far = abs(other - stage) > 1
                programs[rank].append(f"{stage}SEND_{direction}{m}" + (f"@{other}" if far else ""))
                programs[other_rank].append(f"{other}RECV_{direction}{m}" + (f"@{stage}" if far else ""))
        for successor in successors[op]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.append(successor)
    return programs


def plan_of(pipeline: Pipeline, programs: Programs) -> Plan:
    return Plan.from_document(
        {
            **EXAMPLE_PLAN,
            "job": {**EXAMPLE_PLAN["job"], "microbatches": pipeline.num_microbatches},
            "stages": [
                {"id": stage, "layers": [stage, stage + 1], "rank": rank}
                for stage, rank in enumerate(pipeline.rank_of)
            ],
            "programs": programs,
        }
    )


def _any_place(programs: Programs, random: random.Random) -> tuple[int, int]:
    return random.choice([(rank, i) for rank, words in enumerate(programs) for i in range(len(words))])


def _place(programs: Programs, random: random.Random, marker: str) -> tuple[int, int] | None:
    """Place of a word that holds the marker, if there is one."""
    found = [(rank, i) for rank, words in enumerate(programs) for i, w in enumerate(words) if marker in w]
    return random.choice(found) if found else None


def drop(programs: Programs, random: random.Random) -> None:
    rank, position = _any_place(programs, random)
    del programs[rank][position]


def double(programs: Programs, random: random.Random) -> None:
    rank, position = _any_place(programs, random)
    programs[rank].insert(random.randint(0, len(programs[rank])), programs[rank][position])


def swap(programs: Programs, random: random.Random) -> None:
    rank, position = _any_place(programs, random)
    words, other = programs[rank], random.randrange(len(programs[rank]))
    words[position], words[other] = words[other], words[position]


def swap_neighbours(programs: Programs, random: random.Random) -> None:
    rank, position = _any_place(programs, random)
    words = programs[rank]
    if position + 1 < len(words):
        words[position], words[position + 1] = words[position + 1], words[position]


def move_to_another_rank(programs: Programs, random: random.Random) -> None:
    rank, position = _any_place(programs, random)
    target = random.choice([other for other in range(len(programs)) if other != rank] or [rank])
    word = programs[rank].pop(position)
    programs[target].insert(random.randint(0, len(programs[target])), word)


def move_within_rank(programs: Programs, random: random.Random) -> None:
    rank, position = _any_place(programs, random)
    word = programs[rank].pop(position)
    programs[rank].insert(random.randint(0, len(programs[rank])), word)


def swap_receives(programs: Programs, random: random.Random) -> None:
    place = _place(programs, random, "RECV")
    if place is not None:
        words = programs[place[0]]
        other = random.choice([i for i, word in enumerate(words) if "RECV" in word])
        words[place[1]], words[other] = words[other], words[place[1]]


def receive_early(programs: Programs, random: random.Random) -> None:
    """Post all receives of some ranks first, in their order: often a deadlock of blocking transfers."""
    for words in programs:
        if random.random() < 0.6:
            words.sort(key=lambda word: "RECV" not in word)


def swap_message(programs: Programs, random: random.Random) -> None:
    """Exchange two transfer words on a rank, and their two partners: no pair's order need suffer."""
    place = _place(programs, random, "_")
    if place is None:
        return
    words = programs[place[0]]
    others = [i for i, word in enumerate(words) if "_" in word]
    exchanged = [words[place[1]], words[random.choice(others)]]
    for pair in (exchanged, [_partner(word) for word in exchanged]):
        spots = [(r, words.index(word)) for word in pair for r, words in enumerate(programs) if word in words]
        if len(spots) == 2 and spots[0][0] == spots[1][0]:
            (rank, one), (_, two) = spots
            programs[rank][one], programs[rank][two] = programs[rank][two], programs[rank][one]


def _partner(word: str) -> str:
    parsed = parse_word(word)
    direction = parsed.kind[-1]
    if parsed.is_send:
        return transfer_words(parsed.stage, parsed.other_stage, direction, parsed.microbatch)[1]
    return transfer_words(parsed.other_stage, parsed.stage, direction, parsed.microbatch)[0]


MUTATIONS: tuple[Callable[[Programs, random.Random], None], ...] = (
    drop,
    double,
    swap,
    swap_neighbours,
    move_to_another_rank,
    move_within_rank,
    swap_receives,
    receive_early,
    swap_message,
)
