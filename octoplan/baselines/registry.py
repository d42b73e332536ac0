"""Every published baseline by name: what it needs, what it admits, and how its schedule is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from octoplan.baselines.building_block import BuildingBlock, v_half, v_min, zb_h1, zb_h2, zb_v
from octoplan.baselines.classic import gpipe, one_f_one_b
from octoplan.baselines.dualpipe_v import dualpipe_v
from octoplan.baselines.interleaved import interleaved_1f1b, looped_bfs
from octoplan.baselines.schedule import (
    BaselineSchedule,
    PlacementKind,
    RankOrder,
    StageCosts,
    loop_placement,
    v_placement,
)
from octoplan.baselines.weight_filling import zero_bubble_orders
from octoplan.baselines.zb_v import zb_v_orders
from octoplan_schemas import InputError


@dataclass(frozen=True, slots=True)
class BaselineSizes:
    """What a schedule is built for."""

    num_ranks: int
    num_microbatches: int
    stages_per_rank: int
    placement: tuple[int, ...]
    costs: StageCosts | None


@dataclass(frozen=True, slots=True)
class BaselineSpec:
    """A baseline.

    Attributes
    ----------
    placement:
        ``"loop"``: stage s on rank s mod P; ``"v"``: down the ranks and back up.
    backward:
        ``"fused"`` without a W op, else ``"split"``.
    stages_per_rank:
        The default, and the only number admitted unless ``min_stages_per_rank`` is less than
        ``max_stages_per_rank`` (None: no limit).
    microbatches_per_rank:
        At least so many microbatches per rank; 0 admits any number.
    """

    name: str
    placement: PlacementKind
    backward: Literal["split", "fused"]
    stages_per_rank: int
    min_stages_per_rank: int
    max_stages_per_rank: int | None
    microbatches_per_rank: int
    build: Callable[[BaselineSizes], tuple[RankOrder, ...]]


def build_schedule(
    name: str,
    num_ranks: int,
    num_microbatches: int,
    stages_per_rank: int | None = None,
    costs: StageCosts | None = None,
) -> BaselineSchedule:
    """Build a baseline's placement and orders.

    Parameters
    ----------
    name:
        A key of `BASELINES`.
    num_ranks, num_microbatches:
        Both at least 1.
    stages_per_rank:
        None takes the method's default.
    costs:
        What the stages take; zero-bubble methods place W by it. None assumes equal stages with F = I = W.

    Raises
    ------
    InputError
        If there is no such baseline, or it does not admit these sizes.
    """
    spec = baseline(name)
    per_rank = spec.stages_per_rank if stages_per_rank is None else stages_per_rank
    _require_admitted(spec, num_ranks, num_microbatches, per_rank)
    placement = v_placement(num_ranks) if spec.placement == "v" else loop_placement(num_ranks, per_rank)
    orders = spec.build(BaselineSizes(num_ranks, num_microbatches, per_rank, placement, costs))
    return BaselineSchedule(placement, orders, spec.backward)


def baseline(name: str) -> BaselineSpec:
    """Return a baseline by name, or raise `InputError` that lists what exists."""
    if name not in BASELINES:
        raise InputError(f"{name!r} is not a baseline; there are: {', '.join(BASELINES)}", field="strategy")
    return BASELINES[name]


def require_stages_per_rank(spec: BaselineSpec, stages_per_rank: int) -> None:
    """Raise `InputError` if a baseline does not admit a number of stages per rank."""
    least, most = spec.min_stages_per_rank, spec.max_stages_per_rank
    if stages_per_rank >= least and (most is None or stages_per_rank <= most):
        return
    admitted = f"exactly {least}" if least == most else f"at least {least}"
    noun = "stage" if least == 1 else "stages"
    raise InputError(
        f"{spec.name} admits {admitted} {noun} per rank, not {stages_per_rank}; "
        + (f"leave v out or write v={least}" if least == most else f"write v={least} or more"),
        field="strategy",
    )


def _require_admitted(spec: BaselineSpec, num_ranks: int, num_microbatches: int, per_rank: int) -> None:
    if num_ranks < 1:
        raise InputError(f"{num_ranks} ranks cannot run anything; give at least 1", field="devices")
    if num_microbatches < 1:
        raise InputError(f"must be at least 1, not {num_microbatches}", field="microbatches")
    require_stages_per_rank(spec, per_rank)
    least = spec.microbatches_per_rank * num_ranks
    if num_microbatches < least:
        raise InputError(
            f"{spec.name} on {num_ranks} ranks admits {least} microbatches or more, not {num_microbatches}; "
            "raise the microbatches, use fewer ranks, or take zb-v, which admits any number",
            field="microbatches",
        )


def _one_stage(
    name: str, backward: Literal["split", "fused"], build: Callable[[BaselineSizes], tuple[RankOrder, ...]]
) -> BaselineSpec:
    return BaselineSpec(name, "loop", backward, 1, 1, 1, 0, build)


def _looped(
    name: str, min_stages: int, orders: Callable[[int, int, int], tuple[RankOrder, ...]]
) -> BaselineSpec:
    def build(sizes: BaselineSizes) -> tuple[RankOrder, ...]:
        return orders(sizes.num_ranks, sizes.num_microbatches, sizes.stages_per_rank)

    return BaselineSpec(name, "loop", "fused", 2, min_stages, None, 0, build)


def _v_shaped(
    name: str, microbatches_per_rank: int, build: Callable[[BaselineSizes], tuple[RankOrder, ...]]
) -> BaselineSpec:
    return BaselineSpec(name, "v", "split", 2, 2, 2, microbatches_per_rank, build)


def _plain(
    orders: Callable[[int, int], tuple[RankOrder, ...]], sizes: BaselineSizes
) -> tuple[RankOrder, ...]:
    return orders(sizes.num_ranks, sizes.num_microbatches)


def _repeated(block: Callable[[int], BuildingBlock], sizes: BaselineSizes) -> tuple[RankOrder, ...]:
    return zero_bubble_orders(block(sizes.num_ranks), sizes.placement, sizes.num_microbatches, sizes.costs)


def _zb_v(sizes: BaselineSizes) -> tuple[RankOrder, ...]:
    ranks, microbatches = sizes.num_ranks, sizes.num_microbatches
    published = [zb_v_orders(ranks, microbatches)]
    return zero_bubble_orders(zb_v(ranks), sizes.placement, microbatches, sizes.costs, published)


_SPECS = (
    _one_stage("gpipe", "fused", partial(_plain, gpipe)),
    _one_stage("1f1b", "fused", partial(_plain, one_f_one_b)),
    _looped("interleaved-1f1b", 2, interleaved_1f1b),
    _looped("looped-bfs", 1, looped_bfs),
    _one_stage("zb-h1", "split", partial(_repeated, zb_h1)),
    _one_stage("zb-h2", "split", partial(_repeated, zb_h2)),
    _v_shaped("zb-v", 0, _zb_v),
    _v_shaped("v-half", 0, partial(_repeated, v_half)),
    _v_shaped("v-min", 0, partial(_repeated, v_min)),
    _v_shaped("dualpipe-v", 2, partial(_plain, dualpipe_v)),
)

#: Every baseline of the contract (section 8) by name.
BASELINES: dict[str, BaselineSpec] = {spec.name: spec for spec in _SPECS}
