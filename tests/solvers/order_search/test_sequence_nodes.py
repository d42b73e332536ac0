"""Nodes of the sequence search: children, bound, canonical form and frontier, each against a plain enumeration."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from octoplan_solvers.order_search.sequences.arrays import Arrays, build_arrays
from octoplan_solvers.order_search.sequences.bound import lower_bound
from octoplan_solvers.order_search.sequences.canonical import compare, rename, simplify
from octoplan_solvers.order_search.sequences.children import list_children
from octoplan_solvers.order_search.sequences.frontier import Frontier, insert, new_frontier, with_room
from octoplan_solvers.order_search.sequences.node import PAST, append, sizes
from octoplan_solvers.order_search.sequences.path import orders_of
from octoplan_solvers.staged import StagedProblem
from tests.solvers.order_search.problems import FEW_ORDERS, brute_force_with_messages, random_problem

ROUNDING = 1e-9


class Node:
    """Flags and times of a sequence, with what the search does between two steps."""

    def __init__(self, arrays: Arrays, done: np.ndarray, times: np.ndarray) -> None:
        self.arrays, self.done, self.times = arrays, done, times

    @classmethod
    def root(cls, arrays: Arrays) -> Node:
        num_done, num_times, arrivals, usage = sizes(arrays)
        times = np.zeros(num_times)
        times[arrivals:usage] = PAST
        return cls(arrays, np.zeros(num_done, np.int8), times)

    @property
    def is_complete(self) -> bool:
        number = len(self.arrays.stages) * self.arrays.num_microbatches
        return bool(self.done[2 * number : 3 * number].all())

    def children(self) -> tuple[list[tuple[int, float]], float]:
        codes, starts = np.zeros(len(self.done), np.int64), np.zeros(len(self.done))
        number, earliest = list_children(self.arrays, self.done, self.times, codes, starts)
        return list(zip(codes[:number].tolist(), starts[:number].tolist(), strict=True)), earliest

    def after(self, code: int, start: float) -> Node | None:
        """Return the node with an op or message appended, None if memory does not allow it."""
        node = Node(self.arrays, self.done.copy(), self.times.copy())
        return node if append(self.arrays, node.done, node.times, code, start) else None

    def reduce(self, start: float) -> float:
        """Write the node as the frontier keeps it; return the start of the earliest that may come next."""
        floor = start if self.arrays.strict else self.children()[1]
        if np.isfinite(floor):
            simplify(self.arrays, self.done, self.times, floor)
            if self.arrays.strict:
                self.rename()
        return floor

    def rename(self) -> None:
        names = np.zeros(self.arrays.num_microbatches, np.int64)
        rename(self.arrays, self.done, self.times, names, self.done.copy(), self.times.copy())

    def bound(self, floor: float) -> float:
        heads = np.zeros(2 * len(self.arrays.stages) * self.arrays.num_microbatches)
        unblocked = np.zeros(len(self.arrays.ranks) + self.arrays.num_pairs)
        return float(lower_bound(self.arrays, self.done, self.times, floor, np.inf, heads, unblocked))


class Completions:
    """The best end of everything that can follow a node: no node is cut, every bound is held against it."""

    def __init__(self) -> None:
        self._known: dict[bytes, float] = {}

    def best(self, node: Node) -> float:
        key = node.done.tobytes() + node.times[:-1].tobytes()
        if key not in self._known:
            self._known[key] = min(map(self._end, *self._next(node)), default=np.inf)
        return self._known[key]

    @staticmethod
    def _next(node: Node) -> tuple[list[Node], list[float]]:
        pairs = [(node.after(code, start), start) for code, start in node.children()[0]]
        kept = [(child, start) for child, start in pairs if child is not None]
        return [child for child, _ in kept], [start for _, start in kept]

    def _end(self, node: Node, start: float) -> float:
        if node.is_complete:
            return float(node.times[-2])
        floor = node.reduce(start)
        if not np.isfinite(floor):
            return np.inf
        best = self.best(node)
        assert node.bound(floor) <= best * (1 + ROUNDING)
        return best


def tiny(seed: int) -> StagedProblem:
    random = np.random.default_rng(seed)
    return random_problem(random, whole=True, no_time=(seed % 3) * 0.2, shapes=FEW_ORDERS)


@pytest.mark.parametrize("seed", [*range(10), 22, 66, 157, 160, 1056, 2085])
def test_no_bound_is_above_the_best_that_can_follow(seed: int) -> None:
    """At every node of the whole tree; and the root's best is the optimum by every byte, or no more than that."""
    staged = tiny(seed)
    listed = brute_force_with_messages(staged)
    optimum_s = np.inf if listed is None else listed
    strict, loose = (
        Completions().best(Node.root(build_arrays(staged, strict=reading))) for reading in (True, False)
    )
    assert strict == pytest.approx(optimum_s, rel=ROUNDING)
    assert loose <= optimum_s * (1 + ROUNDING)


def random_nodes(seed: int, *, strict: bool) -> Iterator[Node]:
    """Yield the nodes of some sequences drawn at random, as the frontier keeps them."""
    random = np.random.default_rng(seed)
    shape = (((0, 1), 4, True), ((0, 1, 0), 3, True), ((0, 1, 1), 3, False))[seed % 3]
    arrays = build_arrays(random_problem(random, whole=True, shapes=(shape,)), strict=strict)
    for _ in range(5):
        node: Node | None = Node.root(arrays)
        while node is not None and not node.is_complete:
            children, _ = node.children()
            if not children:
                break
            code, start = children[random.integers(len(children))]
            node = node.after(code, start)
            if node is not None and not node.is_complete and np.isfinite(node.reduce(start)):
                yield node


@pytest.mark.parametrize("seed", range(9))
def test_the_canonical_form_does_not_depend_on_names(seed: int) -> None:
    random = np.random.default_rng(seed)
    for node in random_nodes(seed, strict=True):
        renamed = with_names(node, random.permutation(node.arrays.num_microbatches))
        renamed.rename()
        np.testing.assert_array_equal(renamed.done, node.done)
        np.testing.assert_array_equal(renamed.times, node.times)
        for m in range(1, node.arrays.num_microbatches):
            assert compare(node.arrays, node.done, node.times, m - 1, m) <= 0


def with_names(node: Node, names: np.ndarray) -> Node:
    _, _, arrivals, usage = sizes(node.arrays)
    times = node.times.copy()
    times[arrivals:usage] = times[arrivals:usage].reshape(-1, len(names))[:, names].reshape(-1)
    return Node(node.arrays, node.done.reshape(-1, len(names))[:, names].reshape(-1), times)


@pytest.mark.parametrize("seed", range(9))
def test_what_is_simplified_stays_as_it_is(seed: int) -> None:
    """And is not simplified any further."""
    for node in random_nodes(seed, strict=True):
        again = Node(node.arrays, node.done.copy(), node.times.copy())
        again.reduce(node.times[-1])
        np.testing.assert_array_equal(again.times, node.times)
        assert again.children() == node.children()


def filled(arrays: Arrays, rows: list[np.ndarray]) -> Frontier:
    """Insert nodes in which the same has run."""
    frontier = new_frontier(arrays, np.inf)
    done = Node.root(arrays).done
    for row in rows:
        frontier = with_room(frontier, 1)
        insert(arrays, frontier, 1, done, row, 0.0, 0)
    return frontier


def open_rows(frontier: Frontier) -> set[tuple[float, ...]]:
    count = int(frontier.counters[1])
    return {tuple(row[:-1]) for row in frontier.times[1, :count][frontier.is_open[1, :count]].tolist()}


@pytest.mark.parametrize("seed", range(3))
def test_loosely_the_frontier_keeps_what_nothing_else_beats(seed: int) -> None:
    """More nodes than the first table holds; the last time is only where children start from."""
    random = np.random.default_rng(seed)
    arrays = build_arrays(tiny(0), strict=False)
    num_times = sizes(arrays)[1]
    rows = [random.integers(0, 9, num_times).astype(float) for _ in range(150)]
    rows += [row + (random.random(num_times) < 0.2) for row in rows]
    random.shuffle(rows)
    keys = {tuple(row[:-1].tolist()) for row in rows}
    beaten = {key for key in keys for other in keys if other != key and (np.array(other) <= key).all()}
    assert open_rows(filled(arrays, rows)) == keys - beaten


@pytest.mark.parametrize("seed", range(3))
def test_strictly_it_drops_only_what_is_later_by_one_and_the_same_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    arrays = build_arrays(tiny(0), strict=True)
    _, num_times, _, usage = sizes(arrays)
    first = [
        np.where(random.random(num_times) < 0.3, PAST, random.integers(0, 3, num_times)) for _ in range(80)
    ]
    rows = [*first, *(delayed(row, usage, random.integers(1, 4)) for row in first)]
    rows += [row + np.eye(num_times)[random.integers(num_times - 1)] * (row >= 0) for row in first]
    random.shuffle(rows)
    keys = {tuple(row[:-1].tolist()) for row in rows}
    later = {tuple(delayed(row, usage, delay)[:-1].tolist()) for row in rows for delay in range(1, 5)}
    assert open_rows(filled(arrays, rows)) == keys - later


def delayed(row: np.ndarray, usage: int, delay: int) -> np.ndarray:
    """Move every time that still matters; bytes in use are none."""
    is_time = np.arange(len(row)) < usage
    is_time[-2] = True
    return np.where(is_time & (row >= 0), row + delay, row)


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("strict", [False, True])
def test_a_sequence_becomes_an_order_of_every_op_and_message(seed: int, strict: bool) -> None:
    """Microbatch by microbatch: F and B of all stages in turn, each followed by what it sends."""
    staged = tiny(seed)
    arrays, count = build_arrays(staged, strict=strict), staged.num_microbatches
    path: list[int] = []
    for m in range(count):
        steps = [*range(staged.num_stages), *reversed(range(staged.num_stages, 2 * staged.num_stages))]
        for step in steps:
            stage, kind = step % staged.num_stages, 0 if step < staged.num_stages else 3
            path.append((stage * count + m) * 4 + kind)
            sent = np.flatnonzero((arrays.edges["maker"] == step) & arrays.edges["is_decision"])
            path += [-1 - (edge * count + m) for edge in sent.tolist()]
    expected = sorted(code for code in path if code >= 0)
    crossing = np.flatnonzero(arrays.edges["crosses"]).tolist()
    for order in orders_of(arrays, staged, path):
        assert sorted(order.ops.tolist()) == expected
        if order.messages is not None:
            assert sorted(order.messages.tolist()) == sorted(
                edge * count + m for edge in crossing for m in range(count)
            )
