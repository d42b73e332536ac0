"""Turn the declarative constraints of a job (contract, section 7) into `PlacementConstraints`, or say what is wrong.

Contradictions that follow from the constraints alone are refused here, with both entries named. What costs, memory
limits and counts rule out together is left to the solvers, which name the conflict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from octoplan_schemas import Constraint, InputError
from octoplan_solvers.constraints import PlacementConstraints, StagesPerRank

#: One entry of the list: its field, and the constraint that it alone makes.
_Entry = tuple[str, PlacementConstraints]


def placement_constraints(
    constraints: Sequence[Constraint],
    layer_names: Sequence[str],
    *,
    num_ranks: int,
    max_stages_per_rank: int,
) -> PlacementConstraints:
    """Return constraints by layer index.

    Parameters
    ----------
    constraints:
        ``Job.constraints``.
    layer_names:
        Names of the model's layers, in order.
    max_stages_per_rank:
        The job's limit, which ``stages_per_rank.min`` must not exceed.

    Raises
    ------
    InputError
        If a layer or rank is unknown, layers of one stage are not neighbours, or two constraints contradict each
        other. The field is ``constraints.N.key``.
    """
    scope = _Scope({name: index for index, name in enumerate(layer_names)}, num_ranks)
    entries: list[_Entry] = [
        scope.read(constraint, f"constraints.{index}") for index, constraint in enumerate(constraints)
    ]
    _refuse_rank_contradictions(entries, layer_names)
    _refuse_boundary_contradictions(entries, layer_names)
    _refuse_impossible_counts(entries, len(layer_names), num_ranks, max_stages_per_rank)
    return _merge([made for _, made in entries])


@dataclass(frozen=True, slots=True)
class _Scope:
    """The names that constraints may use."""

    position: dict[str, int]
    num_ranks: int

    def read(self, constraint: Constraint, entry: str) -> _Entry:
        """Return the field of a constraint and what it asks for."""
        (key,) = constraint.model_fields_set
        where = f"{entry}.{key}"
        if constraint.pin is not None:
            rank = self._rank(constraint.pin.rank, f"{where}.rank")
            layers = self._layers(constraint.pin.layers, f"{where}.layers")
            return where, PlacementConstraints(pins=tuple((layer, rank) for layer in layers))
        if constraint.same_rank is not None:
            return where, PlacementConstraints(same_rank=(self._layers(constraint.same_rank, where),))
        if constraint.different_rank is not None:
            return where, PlacementConstraints(
                different_rank=(self._apart(constraint.different_rank, where),)
            )
        if constraint.same_stage is not None:
            return where, PlacementConstraints(same_stage=(self._run(constraint.same_stage, where),))
        if constraint.boundary_after is not None:
            return where, PlacementConstraints(
                boundary_after=self._layers([constraint.boundary_after], where)
            )
        if constraint.stages_per_rank is not None:
            rule = constraint.stages_per_rank
            return where, PlacementConstraints(
                stages_per_rank=StagesPerRank(rule.min or 1, rule.max, rule.equal)
            )
        assert constraint.max_in_flight is not None
        limited = self._rank(constraint.max_in_flight.rank, f"{where}.rank")
        return where, PlacementConstraints(max_in_flight=((limited, constraint.max_in_flight.microbatches),))

    def _rank(self, rank: int, where: str) -> int:
        if rank >= self.num_ranks:
            raise InputError(
                f"there is no rank {rank}; the cluster has ranks 0 to {self.num_ranks - 1}", field=where
            )
        return rank

    def _layers(self, names: Sequence[str], where: str) -> tuple[int, ...]:
        """Return the layers' indices in order, each once."""
        for name in names:
            if name not in self.position:
                raise InputError(
                    f"the model has no layer {name!r}; its layers are {_some(self.position)}", field=where
                )
        return tuple(sorted({self.position[name] for name in names}))

    def _apart(self, names: Sequence[str], where: str) -> tuple[int, ...]:
        layers = self._layers(names, where)
        if len(layers) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise InputError(f"names layer {twice!r} twice, and a layer is on one rank only", field=where)
        if len(layers) > self.num_ranks:
            raise InputError(
                f"asks for {len(layers)} different ranks, but the cluster has {self.num_ranks}; name fewer layers",
                field=where,
            )
        return layers

    def _run(self, names: Sequence[str], where: str) -> tuple[int, int]:
        layers = self._layers(names, where)
        ordered = list(self.position)
        for layer, following in pairwise(layers):
            if following != layer + 1:
                raise InputError(
                    f"layers {ordered[layer]!r} and {ordered[following]!r} are not neighbours; name every layer from "
                    f"{ordered[layers[0]]!r} to {ordered[layers[-1]]!r}",
                    field=where,
                )
        return layers[0], layers[-1] + 1


def _some(names: dict[str, int], most: int = 8) -> str:
    listed = list(names)
    text = ", ".join(listed[:most])
    return text if len(listed) <= most else f"{text}, ... ({len(listed)} in all)"


def _merge(made: Sequence[PlacementConstraints]) -> PlacementConstraints:
    rules = [one.stages_per_rank for one in made]
    return PlacementConstraints(
        pins=tuple(dict.fromkeys(pin for one in made for pin in one.pins)),
        same_rank=tuple(group for one in made for group in one.same_rank if len(group) > 1),
        different_rank=tuple(group for one in made for group in one.different_rank),
        same_stage=tuple(run for one in made for run in one.same_stage if run[1] - run[0] > 1),
        boundary_after=tuple(sorted({layer for one in made for layer in one.boundary_after})),
        stages_per_rank=StagesPerRank(
            min=max((rule.min for rule in rules), default=1),
            max=min((rule.max for rule in rules if rule.max is not None), default=None),
            equal=any(rule.equal for rule in rules),
        ),
        max_in_flight=tuple(limit for one in made for limit in one.max_in_flight),
    )


def _refuse_rank_contradictions(entries: Sequence[_Entry], names: Sequence[str]) -> None:
    """Layers that must share a rank are pinned to one rank at most, and none of them must be apart."""
    together = _together(entries, len(names))
    pinned: dict[int, tuple[int, int, str]] = {}
    for where, made in entries:
        for layer, rank in made.pins:
            first_layer, first_rank, first = pinned.setdefault(together[layer], (layer, rank, where))
            if first_rank != rank:
                raise InputError(
                    f"puts layer {names[layer]!r} on rank {rank}, but {first} puts "
                    f"{_same_or(first_layer, layer, names)} on rank {first_rank}; drop one",
                    field=where,
                )
    for where, made in entries:
        for one, other in (pair for group in made.different_rank for pair in combinations(group, 2)):
            reason = _same_rank_reason(together[one], together[other], pinned)
            if reason:
                raise InputError(
                    f"asks for different ranks for layers {names[one]!r} and {names[other]!r}, but {reason}; drop one",
                    field=where,
                )


def _together(entries: Sequence[_Entry], num_layers: int) -> list[int]:
    """Return, per layer, the first of the layers that must be on its rank."""
    leader = list(range(num_layers))
    groups = [group for _, made in entries for group in made.same_rank]
    groups += [tuple(range(*run)) for _, made in entries for run in made.same_stage]
    for group in groups:
        leaders = {leader[layer] for layer in group}
        leader = [min(leaders) if own in leaders else own for own in leader]
    return leader


def _same_or(first: int, layer: int, names: Sequence[str]) -> str:
    if first == layer:
        return "it"
    return f"layer {names[first]!r}, which must be on the same rank,"


def _same_rank_reason(one: int, other: int, pinned: dict[int, tuple[int, int, str]]) -> str:
    """Say why two groups of layers are on one rank; empty if nothing says so."""
    if one == other:
        return "other constraints ask for the same rank"
    if one in pinned and other in pinned and pinned[one][1] == pinned[other][1]:
        wheres = " and ".join(dict.fromkeys((pinned[one][2], pinned[other][2])))
        return f"{wheres} pin both to rank {pinned[one][1]}"
    return ""


def _refuse_boundary_contradictions(entries: Sequence[_Entry], names: Sequence[str]) -> None:
    runs = [(where, run) for where, made in entries for run in made.same_stage]
    for where, made in entries:
        for layer in made.boundary_after:
            for other, (first, end) in runs:
                if first <= layer < end - 1:
                    raise InputError(
                        f"asks for a boundary after layer {names[layer]!r}, but {other} keeps it in one stage with "
                        f"{names[layer + 1]!r}; drop one",
                        field=where,
                    )


def _refuse_impossible_counts(
    entries: Sequence[_Entry], num_layers: int, num_ranks: int, max_stages_per_rank: int
) -> None:
    """Every least number of stages must be within every largest one, and within the layers that there are."""
    rules = [(where, made.stages_per_rank) for where, made in entries]
    largest = [(rule.max, f"{where}.max") for where, rule in rules if rule.max is not None]
    limit, source = min([*largest, (max_stages_per_rank, "max_stages_per_device")])
    for where, rule in rules:
        if rule.min > limit:
            raise InputError(
                f"asks for {rule.min} stages per rank, but {source} is {limit}", field=f"{where}.min"
            )
        if rule.min * num_ranks > num_layers:
            raise InputError(
                f"asks for {rule.min} stages on each of {num_ranks} ranks, but the model has {num_layers} layers; "
                f"ask for {num_layers // num_ranks} at most",
                field=f"{where}.min",
            )
