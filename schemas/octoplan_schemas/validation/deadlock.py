"""Deadlock freedom as acyclicity (contract, section 5).

One node per compute op and one per message (SEND and RECV together). Edges: each rank's compute order, each
rank's order of SEND/RECV words, producer to message, message to consumer. A plan that is complete and ordered
inside each rank (checked before) needs no further data edges: those between ops of one rank follow from its
compute order.

Nor does it need the compute ops to decide: in each rank's program a producer stands before its SEND and a RECV before
its consumer, so a path from message to message through compute ops of one rank follows the rank's order of SEND/RECV
words. The graph has a cycle exactly if the messages alone have one, that is if the ranks get stuck when each works
off its SEND/RECV words one after another and every message waits for both ends.
"""

from __future__ import annotations

from itertools import pairwise

from octoplan_schemas.validation.index import MessageKey, ProgramIndex


def find_cycle(index: ProgramIndex) -> list[str] | None:
    """Return the words of one cycle (a SEND stands for its message), or None. Linear in the words.

    The plan must be complete and ordered inside each rank.
    """
    if _all_messages_pass(index):
        return None
    successors, labels = _graph(index)
    in_degree = [0] * len(labels)
    for outgoing in successors:
        for node in outgoing:
            in_degree[node] += 1
    ready = [node for node, degree in enumerate(in_degree) if degree == 0]
    while ready:
        node = ready.pop()
        for successor in successors[node]:
            in_degree[successor] -= 1
            if in_degree[successor] == 0:
                ready.append(successor)
    return [labels[node] for node in _walk_cycle(successors, in_degree)]


def _all_messages_pass(index: ProgramIndex) -> bool:
    """Work off every rank's SEND/RECV words in order; a message passes when both its ends are next."""
    orders, sends, recvs = index.message_order, index.sends, index.recvs
    passed = [0] * len(orders)
    awake = list(range(len(orders)))
    while awake:
        rank = awake.pop()
        own = orders[rank]
        while passed[rank] < len(own):
            message = own[passed[rank]]
            other = recvs[message][0] if sends[message][0] == rank else sends[message][0]
            if passed[other] == len(orders[other]) or orders[other][passed[other]] != message:
                break
            passed[rank] += 1
            passed[other] += 1
            awake.append(other)
    return all(count == len(order) for count, order in zip(passed, orders, strict=True))


def _graph(index: ProgramIndex) -> tuple[list[list[int]], list[str]]:
    labels: list[str] = []
    successors: list[list[int]] = []

    def add(label: str) -> int:
        labels.append(label)
        successors.append([])
        return len(labels) - 1

    compute_node = {op: add(f"{op[0]}{op[1]}{op[2]}") for op in index.computes}
    message_node = {message: add(message_word("SEND", message)) for message in index.sends}
    for ops in index.compute_order:
        for before, after in pairwise(ops):
            successors[compute_node[before]].append(compute_node[after])
    for messages in index.message_order:
        for one, other in pairwise(messages):
            successors[message_node[one]].append(message_node[other])
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


def message_word(side: str, key: MessageKey) -> str:
    """Write the SEND or RECV word of a message."""
    source, destination, microbatch = key
    direction = "F" if source < destination else "B"
    end, other = (source, destination) if side == "SEND" else (destination, source)
    skip = "" if abs(source - destination) == 1 else f"@{other}"
    return f"{end}{side}_{direction}{microbatch}{skip}"


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
