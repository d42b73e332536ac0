"""Deadlock freedom as acyclicity (contract, section 5).

One node per compute op and one per message (SEND and RECV together). Edges: each rank's compute order, each
rank's order of SEND/RECV words, producer to message, message to consumer. A plan that is complete and ordered
inside each rank (checked before) needs no further data edges: those between ops of one rank follow from its
compute order.
"""

from __future__ import annotations

from octoplan_schemas.validation.index import MessageKey, ProgramIndex


def find_cycle(index: ProgramIndex) -> list[str] | None:
    """Return the words of one cycle (a SEND stands for its message), or None. Linear in the words.

    The plan must be complete and ordered inside each rank.
    """
    successors, labels = _graph(index)
    in_degree = [0] * len(labels)
    for outgoing in successors:
        for node in outgoing:
            in_degree[node] += 1
    ready = [node for node, degree in enumerate(in_degree) if degree == 0]
    done = 0
    while ready:
        node = ready.pop()
        done += 1
        for successor in successors[node]:
            in_degree[successor] -= 1
            if in_degree[successor] == 0:
                ready.append(successor)
    if done == len(labels):
        return None
    return [labels[node] for node in _walk_cycle(successors, in_degree)]


def _graph(index: ProgramIndex) -> tuple[list[list[int]], list[str]]:
    labels: list[str] = []
    successors: list[list[int]] = []
    message_node: dict[MessageKey, int] = {}
    compute_node: dict[tuple[int, str, int], int] = {}

    def add(label: str) -> int:
        labels.append(label)
        successors.append([])
        return len(labels) - 1

    for words in index.words:
        last_compute = last_message = -1
        for word in words:
            stage, kind, microbatch, _ = word
            if len(kind) == 1:
                node = compute_node[stage, kind, microbatch] = add(str(word))
                if last_compute >= 0:
                    successors[last_compute].append(node)
                last_compute = node
                continue
            if kind[0] == "S":
                key = stage, word.other_stage, microbatch
            else:
                key = word.other_stage, stage, microbatch
            existing = message_node.get(key)
            node = message_node[key] = add("") if existing is None else existing
            if kind[0] == "S":
                labels[node] = str(word)
            if last_message >= 0:
                successors[last_message].append(node)
            last_message = node
    for (source, destination, m), node in message_node.items():
        if source < destination:
            producer, consumer = compute_node[source, "F", m], compute_node[destination, "F", m]
        else:
            producer, consumer = (
                compute_node[stage, "B" if (stage, "B", m) in compute_node else "I", m]
                for stage in (source, destination)
            )
        successors[producer].append(node)
        successors[node].append(consumer)
    return successors, labels


def _walk_cycle(successors: list[list[int]], in_degree: list[int]) -> list[int]:
    """Walk backwards among the nodes that never became ready: each has a predecessor there."""
    predecessor: dict[int, int] = {}
    for node, degree in enumerate(in_degree):
        if degree > 0:
            for successor in successors[node]:
                if in_degree[successor] > 0:
                    predecessor.setdefault(successor, node)
    node = next(iter(predecessor))
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = predecessor[node]
    return path[seen[node] :][::-1]
