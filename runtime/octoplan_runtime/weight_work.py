"""What I leaves for W: where weights branch off the path from a stage's outputs to its inputs.

In the graph behind the outputs, the nodes that lead to the inputs form the path. A cut is a node of the path from which
a branch leads to weights alone. I runs the path and keeps the gradients that come in at every cut; W starts from the
cuts with these gradients and runs the branches. Cuts that lead to a common weight run together, or its branch would be
freed after the first; the engine then walks the path between them too, and each cut takes the gradients that I has kept
in place of those that arrive a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch.autograd.graph import GradientEdge, Node

#: Of the outputs of a node.
Gradients = tuple[torch.Tensor | None, ...]
Start = tuple[GradientEdge, torch.Tensor]


@dataclass(slots=True, eq=False)
class Cut:
    """A node of the path, and the leaves that branch off there."""

    node: Node
    leaves: set[Node]
    gradients: Gradients = ()

    def keep(self, gradients: Gradients) -> None:
        """Be the node's hook in I."""
        self.gradients = gradients

    def replace(self, gradients: Gradients) -> Gradients:
        """Be the node's hook in W: what came in has passed hooks of the model before, which must not act twice."""
        return self.gradients

    def starts(self) -> list[Start]:
        """Return where W starts."""
        return [
            (GradientEdge(self.node, number), gradient)
            for number, gradient in enumerate(self.gradients)
            if gradient is not None
        ]


@dataclass(slots=True, eq=False)
class _Group:
    """Cuts that lead to common leaves, and outputs of the stage off the path that lead there too."""

    leaves: set[Node]
    cuts: list[Cut] = field(default_factory=list)
    outputs: list[Start] = field(default_factory=list)

    @property
    def walks_the_path(self) -> bool:
        return len(self.cuts) + len(self.outputs) > 1

    def absorb(self, other: _Group) -> None:
        self.leaves |= other.leaves
        self.cuts += other.cuts
        self.outputs += other.outputs

    def starts(self) -> list[Start]:
        return [start for cut in self.cuts for start in cut.starts()] + self.outputs

    def run(self, *, retain_graph: bool) -> None:
        starts = self.starts()
        if not starts:
            return
        hooks = [cut.node.register_prehook(cut.replace) for cut in self.cuts]
        weights = [leaf.variable for leaf in self.leaves]  # type: ignore[attr-defined]
        try:
            # The engine takes edges as well as tensors; the annotation of older releases lags behind.
            torch.autograd.backward(
                [edge for edge, _ in starts],
                [gradient for _, gradient in starts],
                retain_graph=retain_graph,
                inputs=weights,
            )
        finally:
            for hook in hooks:
                hook.remove()


class WeightWork:
    """W of one stage and microbatch; `split_at_cuts` makes it."""

    def __init__(self, groups: list[_Group]) -> None:
        self._groups = groups

    @property
    def cuts(self) -> list[Cut]:
        """Where gradients have to be kept in I."""
        return [cut for group in self._groups for cut in group.cuts]

    def join(self) -> None:
        """Make it one pass of the engine: the path is walked again, but a checkpoint recomputes once and not for every
        weight."""
        whole = _Group(set())
        for group in self._groups:
            whole.absorb(group)
        self._groups = [whole]

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients that are held until W."""
        return [gradient for group in self._groups for _, gradient in group.starts()]

    def run(self) -> None:
        """Add to ``.grad`` of every weight that the graph leads to; possible once."""
        groups, self._groups = self._groups, []
        # Those that free parts of the path come last.
        groups.sort(key=lambda group: group.walks_the_path)
        for number, group in enumerate(groups, start=1):
            group.run(retain_graph=number < len(groups) and groups[-1].walks_the_path)


def split_at_cuts(outputs: Sequence[Start], inputs: set[Node]) -> tuple[list[Start], WeightWork]:
    """Return the outputs from which I starts, and what is left for W.

    Parameters
    ----------
    outputs:
        Where the gradients of the stage's outputs enter the graph.
    inputs:
        The nodes of the stage's inputs.
    """
    following = _following(edge.node for edge, _ in outputs)
    path = _path(following, inputs)
    off_path = [start for start in outputs if start[0].node not in path]
    work = WeightWork(_groups(_cuts(following, path), off_path, following))
    return [start for start in outputs if start[0].node in path], work


def _following(roots: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return every node behind some and the nodes that follow it."""
    found: dict[Node, list[Node]] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = [next_node for next_node, _ in node.next_functions if next_node is not None]
            stack += found[node]
    return found


def _path(following: dict[Node, list[Node]], inputs: set[Node]) -> set[Node]:
    """Return the nodes that lead to an input."""
    before: dict[Node, list[Node]] = {}
    for node, next_nodes in following.items():
        for next_node in next_nodes:
            before.setdefault(next_node, []).append(node)
    path: set[Node] = set()
    stack = [node for node in inputs if node in following]
    while stack:
        node = stack.pop()
        if node not in path:
            path.add(node)
            stack += before.get(node, [])
    return path


def _cuts(following: dict[Node, list[Node]], path: set[Node]) -> list[Cut]:
    cuts = []
    for node in path:
        branches = [next_node for next_node in following[node] if next_node not in path]
        if branches and (leaves := _leaves(following, branches)):
            cuts.append(Cut(node, leaves))
    return cuts


def _leaves(following: dict[Node, list[Node]], roots: Iterable[Node]) -> set[Node]:
    """Return the leaves behind some nodes."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += following[node]
    return {node for node in seen if not following[node] and hasattr(node, "variable")}


def _groups(cuts: Sequence[Cut], outputs: Sequence[Start], following: dict[Node, list[Node]]) -> list[_Group]:
    """Put together what leads to a common leaf."""
    groups = [_Group(set(cut.leaves), cuts=[cut]) for cut in cuts]
    groups += [_Group(_leaves(following, [start[0].node]), outputs=[start]) for start in outputs]
    group_of: dict[Node, _Group] = {}
    for group in groups:
        joined = {id(other): other for leaf in group.leaves if (other := group_of.get(leaf))}
        for other in joined.values():
            group.absorb(other)
        group_of.update(dict.fromkeys(group.leaves, group))
    return list({id(group): group for group in group_of.values()}.values())
